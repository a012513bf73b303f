// Package server wires Berth together; it is the one place that knows every
// other package, and this is the project's architecture page.
//
// # One request
//
// One net/http listener is the front (package edge). It splits by Host: a name
// below the apps domain goes to the proxy, which finds the service's target in its
// stack's entry of the route table; the base URL's host goes by path to the JSON API
// or to the pages, two Fiber apps (package appserver) that listen in memory and are
// targets of the same streaming proxy. Uploads stream into the API, a client that leaves is
// seen upstream, and Fiber never touches tenants' traffic. Certificates, where no
// proxy in front has them, are package certs'.
//
// The same host has the pages for people (package web), the tools for agents at
// /mcp (package mcp), which ask the API in the caller's name, and what the
// server tells of itself (package docs): the API document, the manifest's
// schema and llms.txt. The front page is a page for a browser and a text for
// everybody else.
//
// # One create
//
//	POST -> api         access, limiters, body spooled to disk       401 413 429
//	     -> archive     its turn to be unpacked (package fair)       503
//	     -> manifest    checks, detection                            422
//	     -> supervisor  store.Create: the cap and the rows           429
//	                    build each service, start, health, switch, commit
//	store commit -> wake: wait=true readers and streams read again, webhooks follow
//	                      the events from the last one they saw
//
// An anonymous create that makes no stack is taken out of the limit again; one that
// is refused for what it brought counts in another. A request with an
// Idempotency-Key leaves a receipt in the transaction of its stack or deploy
// (store/receipts.go), so that a repetition gets its answer even when the server
// died before it gave one (api/idempotency.go).
//
// # One redeploy
//
// The new generation is built and started beside the old one, on a network of its
// own (docker/network.go), so that a service's name leads each caller to its own
// generation. It takes the traffic by one swap of the stack's routes once every service
// is healthy; only then is it committed. The old one finishes what it has begun, then
// its containers, network, images and sites go. A service that would be built the same
// way again (builder/fingerprint.go) takes over what the old one has. With
// strategy: recreate the old process stops first, and comes back
// if the new one fails.
//
// # People
//
// Package account is every way in: sign-up, sign-in, claims. It asks the limits
// first, and is what both the API's claim and the pages (package web) call, so
// that neither has a way around them. A password is an argon2id hash, a few at a
// time; a session is a hash of the cookie's token. The edge refuses forms that a
// page of another origin sends, the pages those without their token, and the
// proxy keeps the host's cookies from tenants in both directions.
//
// An account is deleted in one transaction with all its stacks, from its page or
// from the shell, where another process does it: the store wakes its watchers for
// such commits too, and each stack's runner discards what is left of a stack whose
// row says that it is deleted. Without a server the next start does so.
//
// The pages are templates whose Go code is committed. Each works without
// scripts; with them it follows its stack through one stream of server-sent
// events (web/stream.go), which the wake after a commit and new lines of a log
// (logfile/follow.go) set off.
//
// A restart from the dashboard (supervisor/restart.go) is the watcher's first act:
// another process of the same generation starts beside the old one, under no name
// that the other services call; when it is healthy it gets the service's name, the
// row counts it, and it gets the traffic. The count is in the name of its container,
// so a server that starts in between knows which of the two serves. One that
// restarts in place loses the name until it is healthy.
//
// # What goes on by itself
//
// Each process of a served generation has a watcher (supervisor/crash.go) that
// the engine's events, or a look at all containers every 2 s, wake up; inspect
// decides. Each stack has a clock (supervisor/lifetime.go) that reads the row
// again after every commit: notice, expiry, end of retention. At expiry every
// $DATA_DIR becomes an image, and a claim fills a new volume from it
// (supervisor/snapshot.go, docker/snapshot.go). An engine that went away and came back is a restore
// for each stack, not a crash (supervisor/absence.go): its absences are counted,
// and whatever ended or failed since the last one that it had seen is the engine's
// doing.
//
// # One delivery
//
// Package webhook reads the ids of new events after each commit and puts those
// of stacks with a webhook into a lane for each stack. An attempt reads the
// event, the URL and the secret again, so a waiting delivery is an id, and a
// redeploy's URL counts at once. Lanes are bounded one by one and together, with
// room kept for lanes that have nothing under way: a receiver that hangs delays
// its own stack. The guard is the dialer's Control, so it sees the address that
// is really dialled, on a connection made for that attempt. Retries wait in Redis,
// which this process can do without. The database keeps the id up to which every
// event's first attempt has begun, and the next server goes on from there. A
// deleted stack's secret stays until its last event is delivered or given up.
//
// # What operators see
//
// Every request has an id, the client's own when it is a sane one, which its
// line in the log and the errors that hide their cause carry. Package metrics
// counts for Prometheus; nobody imports it but this package, which hands its
// functions to the store, the builder, the engine and the API. They are read at
// BERTH_ADMIN_LISTEN with the profiles of the process, never at the public
// address.
//
// # What a stack cannot reach
//
// Every container, building or running, has a user of its stack's own, no
// capability, and the system call filter of package docker (seccomp.go). Each
// generation has a bridge and a /28; package firewall keeps one fixed set of rules
// for all of them in the table mangle, by the prefix of the bridges' names, which
// the supervisor has checked at start, every 15 s, when a stack is claimed, and
// before anything runs in a new network of a claimed stack, which may send mail
// (package admission). While the rules are not in place anonymous creates are
// refused; while a disk is nearly full, every upload and build. The probe under
// integration tries all of it from within.
//
// # Who owns what
//
// Package stack is the domain and does no I/O; lifecycle.go is the one table of
// states. Package store is the only writer of stacks and events: a change and
// its events are one transaction, announced after the commit. Package supervisor
// has one runner per stack that owns its long jobs. Package builder makes images
// and sites. Both ask an engine.Driver for what happens in the engine; package
// docker is the one of a Docker engine, and knows no status. Package firewall knows
// the rules of one machine and shares them with other installations on it. Package
// logfile keeps the logs as bounded files, with the bytes that programs wrote;
// package safetext makes text for terminals of what is read of them, and of errors.
// Package site serves published folders. Imports
// point one way; a test in this package keeps them
// so.
//
// # The client
//
// Command berth is a program of its own that knows of the server only its HTTP
// API (package client). Package pack decides what of a folder is uploaded,
// package cli is the commands; of the server's packages it shares archive,
// manifest and stack, so that init and check see a folder as the server will.
//
// # What survives what
//
// Rows are in SQLite with synchronous=FULL, so what was answered is on disk.
// Names of engine objects are derived from the stack, and everything carries the
// installation's label: a server that was killed is followed by one that lists
// by label, adopts what runs, and removes what the rows know as deleted. What no
// row knows, a stack or a generation that is newer than its row, may be another
// database's: it goes after a while, and its data never (supervisor/orphans.go).
// Redis holds only what may be lost: rate-limit windows and webhook retries. While
// it is away, or after it lost data, each process holds the limits for what it let
// through itself. A restart drops the retries that are pending; their events stay
// in the database. What the engine still makes for a server that is dead, and what
// could not be removed, goes with the next look for leftovers
// (supervisor/sweep.go). A job that meets an error of
// the database goes on trying (supervisor/runner.go): its work in the engine is
// done. Package failpoint names the places where a crash would hurt; the
// integration tests kill the server at each.
package server
