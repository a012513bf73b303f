// Package server wires Berth together: it is the one place that knows every other
// package. This page is the architecture: a map, then three lives, each step with the
// file to open first. What a line in a package may touch is in that package's comment
// (go doc ./internal/stack). Imports point one way, and imports_test.go keeps them so.
//
// # The map
//
//	what is legal
//	  stack, stackid     states, events, rules, no I/O; lifecycle.go is the one table
//	  archive, manifest  what an upload may contain; what a project asks for
//	who decides
//	  supervisor         one loop for each stack owns its jobs, deadlines, what it serves
//	  admission          may something new begin: room on the disks, the firewall
//	  account            sign-up, sign-in and claims, for the API and the pages
//	  domain             hosts of owners: their records at the DNS, their certificates
//	  cluster            which nodes there are, whose leases hold, where a new stack goes
//	who does it
//	  engine             the contract of a driver (driver.go), the names of its objects
//	  docker             the driver of a Docker engine: knows no row, no status, no route
//	  builder            from a source to an image or a site, through a driver
//	  firewall           what the networks of stacks may reach
//	  health             asks a program whether it answers
//	who keeps it
//	  store              SQLite, and the only writer of accounts, stacks and events
//	  datadir, logfile   the files of stacks, and their logs
//	  source             the trees that generations are built from, and what changes them
//	  depot, registry    what a stack needs to begin on another node: images, sealed data
//	  usage              what services served and used, in a database of its own
//	  redis              what may be lost: the rate limits' windows, webhooks' retries
//	  auth               keys and tokens, as hashes or sealed
//	who answers
//	  edge, certs        the public listener: callers, request ids, the split by Host
//	  proxy, site        from a host to a process (exchange, socket, wire), or to a folder
//	  peer, streams      from node to node of a cluster: the owner of a stack answers
//	  api, web           the JSON API and the pages, on appserver, sse and slowbody
//	  docs, mcp          the API's own documents; tools for agents, which call the API
//	  webhook            every event to the stack's URL, once it is committed
//	  mail               what the holders of accounts are told by mail
//	on the user's machine
//	  cli, client, pack  the command berth, which knows a server by its API alone
//	helpers
//	  backup, chart, disk, doctor, fair, failpoint, histogram, hostfault, lastlines, manpage, metrics, pause, plainjson, safetext
//
// Outside internal, runtimes and images define the languages, cmd has the two programs,
// and integration the tests against a real engine.
//
// Three rules hold everywhere. A change of a stack and its events are one transaction,
// and whoever waits reads again after the commit. Names of engine objects are derived
// from the stack, and every step towards the engine may be repeated, so the server that
// follows a killed one reads the rows, lists what the engine has, and makes the second
// agree with the first (supervisor/restore.go, sweep.go). A tenant's program reaches
// only its own network and the outside (docker/create.go, docker/network.go,
// firewall/rules.go), and a tenant's traffic passes only edge, proxy and exchange.
//
// # The life of a create
//
//	edge/edge.go              identifies the caller and splits by Host (server/pages.go)
//	api/create.go             who it is (access.go), a repetition (idempotency.go), how
//	                          often (quota.go), and whether the host has room
//	api/upload.go             spools the body to disk
//	api/unpack.go             waits its turn (package fair) and unpacks the archive
//	manifest/resolve.go       checks every field and detects the rest
//	supervisor/supervisor.go  Create commits the row with its events, and asks the
//	                          stack's loop (loop.go) to run the first job
//	supervisor/deploy.go      the job: build, start, switch, clean up
//	builder/build.go          takes over what did not change; plans the rest (layer.go)
//	builder/work.go           one or two containers for each service: copy, commands, commit
//	supervisor/generation.go  network, data, release command, process, health check
//	supervisor/loop.go        switchTo: the row is live and the routes lead there
//	store/watch.go            wakes who waits: api/wait.go, web/stream.go, webhook
//
// A deploy (api/deploy.go) takes the same way from there on. The new generation starts
// beside the old one, on a network of its own, so that each finds its own services. It
// takes the traffic in one step once every service is healthy; then the old one
// finishes its requests and all of it goes. With strategy: recreate the old process
// stops first, and comes back if the new one fails.
//
// # The life of a crash
//
//	supervisor/exits.go       the engine's events, or a regular look at all containers,
//	                          tell the loop, which wakes the process's watcher
//	supervisor/crash.go       handleEnd takes the target out of the routes
//	supervisor/absence.go     if the engine itself went away it is not a crash: all that
//	                          the stack lost is brought back, as one restore
//	stack/crash.go            otherwise it counts in the row, by the loop's countCrash:
//	                          how long to wait, or one crash too many
//	supervisor/process.go     starts the container again, waits until it is healthy
//	supervisor/crash.go       endFallen: one too many ends all processes; the rest stays
//
// A restart that the owner asks for (supervisor/restart.go) is done by the same watcher.
// A one-off command (api/exec.go, supervisor/command.go) runs beside the process, in its
// container, and ends with it; docker/command.go ends it, which the engine cannot.
//
// # The life of an expiry
//
//	stack/lifetime.go         Next: what time alone does to a stack, and when
//	supervisor/lifetime.go    the loop's clock reads the row after every commit: notice,
//	                          expiry, end of the retention
//	supervisor/lifetime.go    expire, a job that stops the one under way and every process
//	supervisor/snapshot.go    each $DATA_DIR becomes an image (docker/snapshot.go)
//	account/claim.go          a claim before the retention ends
//	supervisor/restore.go     fills the volumes and starts the images; nothing is built
//	supervisor/leftovers.go   without a claim: everything of the stack is removed
//
// # Where the server begins and ends
//
// server.go opens one part after the other and hands each what it needs; run.go serves
// and shuts down. config.go has the settings. Only this package imports metrics: others
// are given functions to call, and admin.go shows what they counted.
package server
