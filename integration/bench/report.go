package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

const page = `# Benchmarks

Made by ` + "`make bench`" + ` on %s.

%s
How to read the table. Each row compares two things that one run measured alternately. The ratio is the median over the pairs of Berth's figure divided by the peer's. It says more than the figures themselves, which change with the machine and its load. For requests a higher ratio is better, for everything else a lower one. Where the goal is a difference, it stands in place of the ratio. A row without a peer shows the worst of its figures. Some rows have a goal that the project has set itself.

- **proxied**, **POST**, **static**, **TLS**: the whole server, with its database open and its metrics on, has one core, as have in turns nginx, HAProxy, Caddy, and a program that uses only Go's ` + "`httputil.ReverseProxy`" + `. All of them pass requests to the same program in a stack's container, which has the other core together with wrk. CPU is the user and system time of the proxy's processes divided by the number of requests. The rows show how busy the two cores were while Berth was measured. Requests have a goal where the proxies' core was at least 95 %% busy for both and the other one less than 90 %%; elsewhere the CPU of a request has the goal that follows from it. The static site is one of Berth, and for nginx a folder with sendfile and its open file cache. TLS is 1.3, with the same certificate, group and cipher on both sides, and new connections resume nothing. An idle connection has carried one request.
- **10000 hosts**: requests for one host, and for 10,000 by chance, each of a stack of its own, through Berth's public listener (edge and proxy, without the rest of the server).
- **look at a kept connection**: before each request the proxy asks the kernel whether the connection that it is about to reuse is open and silent. The row compares the cost of one such look (from the benchmark in ` + "`internal/exchange`" + `, 300,000 at a time) with the cost of a whole request, alternately, on 64 connections, where a request costs least.
- **memory**: how much the resident memory of a freshly started proxy grows while 500 MB pass, compared with its size after 100 small requests.
- **deploy**: the time from the start of the POST, which waits until the stack is live, to the first 200 at the public URL, for a Node program of 100 files whose install and build commands are ` + "`true`" + `, which take almost no time. By hand, over the engine's API: create a container, copy the files, start it, run the two commands, commit, create and start the result, first 200 from its address. In the first row this is on the engine's default network, and the goal refers to it; in the second it creates a network for the program first, as Berth does for every generation.
- **static site live**: the time from the last byte of the upload to the first 200 at the public URL, for 100 files of 10 KB. By hand: unpacking the same archive with tar into a folder that nginx serves.
- **switch**, **redeploy**: the same Node program is deployed again, unchanged. The switch is the time from its first response, which goes to the health check and which it records itself, to the first response of the new generation at the public URL, which is requested every 5 ms. The redeploy is the time from the start of the POST to its response, which waits until the new generation is live.
- **edit**: a stack's source is changed in one line and deployed again, as agents do most. An edit sends the file that changed, to be laid over the served source. The time runs from the start of the POST, which waits until the new generation is live, to the first answer at the public URL that shows the change. The packages are installed and the caches warm, on both sides; 2 seconds pass between two edits.
  - **a Node program, 71 packages** is the API of ` + "`examples/guestbook`" + `. By hand: a Dockerfile whose ` + "`RUN npm ci`" + ` is cached, built by the engine's BuildKit from a source sent over the engine's API; then a container of the image on the engine's default network, while the one before still runs; first 200 from its address. Its own start is the time from when that container's process began to its first answer.
  - **a Vite site**, **a Go program**: the difference to the build command alone, run after the same edit in a container of the same base image, which keeps its packages and caches, and timed in there. The site is in ` + "`integration/bench/testdata`" + `; the program is generated.
  - **a static site**: from the last byte of the upload, for files of 1 KB. By hand: unpacking the file with tar into a folder of as many files that nginx serves.
  - **a program of 5,000 files**: 40 MB, compared with the same edit of a program of 40 files. The build command is ` + "`true`" + `.
- **crash**: the program exits when requested to at its public URL. The row is the time from that request until the API shows the event, checked every 5 ms.
- **restore of 1 GB**: 1,000 files of 1 MB in a stack's data folder. The time from the claim of the expired stack to the first 200 at the public URL, compared with ` + "`tar -cf - | tar -xpf -`" + ` in a container that copies the same files from their volume to a new one.
- **snapshot of 200 MB**: 200 files of 1 MB of a volume are kept in an image of the same engine. Berth copies them in a container, compares both lists of files, and commits the container. The other way is the engine's archive of the volume, imported as an image, with the same list compared.
- **100 live stacks**: each is one small program in a container on its own network. The time from the start of the server's process, while the containers run, until all public URLs have answered with 200; and the server's processor time over a minute without requests, as a share of one core.
- **100 busy stacks**: the same stacks, each asked ten times a second, one of them with 100,000 files of data. The share of one core that the server's code for the metrics takes in a profile of a minute, with the reading of control groups and the walk over the data. The engine is asked once when a process starts, so it takes no part.
- **1000 stacks**: the database of the server with 100 live stacks has 900 failed ones and 200,000 events more. The time from the start of the server's process to its answer at ` + "`/healthz`" + ` and to those of all live stacks; the longest that a request, one after the other, waits while another process takes its place (SIGHUP); and the median of 50 requests to the API beside that of a server with 10 stacks, in turns, for a stack and the lists of an account that has 10.
- **neighbour**: the 99th percentile over a second of the latencies of a Node program, requested every millisecond, while another stack exhausts a resource at its limits of 256 processes, 512 MiB and half a core, compared with the same while that stack is idle.
- **webhooks**: deliveries without the rest of the server (database, embedded Redis, dispatcher) to a receiver on loopback that this program runs: 6,000 events recorded at once, compared with bare POSTs of the same body on kept connections; the time from the recording of a single event to its arrival; and the growth of memory with 100,000 deliveries to receivers that hang.
- **50 nodes, 10,000 stacks**: 50 stores, each with its own connections, on one PostgreSQL of this machine: the owner of a random stack, its row, the time from the end of a commit through one of them until another hears of it, and the reading of a node's table of routes.
- **nodes in a lab**: three real servers on three nested Docker engines in one swarm, with a PostgreSQL, a Redis and a registry, all on the cores of this machine.
  - **through a node without the stack**: wrk asks for 1 KB of a Go program, alternately through a node that forwards to the stack's own and through that one. On one connection the row shows how long the way through another node takes, on 64 how much a node can forward; the goal is for the latter.
  - **a lost node**: a node with 100 static sites, 100 files of 10 KB each, is killed as by a power cut. The time from when another node says that it is lost until all sites have answered through that one.
  - **move**: 200 files of 1 MB in a stack's data folder. The stack is asked through a third node all the time while it moves from one node to another, and no request may fail.
  - **creates**: 12 stacks of one small program, 6 at once, on three nodes and on one of the same three. The nodes share the cores of this machine, so this says what three nodes cost, not what three machines gain.
`

// handwritten begins the handwritten part of the page.
const handwritten = "\n## Chaos\n"

// writeReport writes the table to a page. It keeps the handwritten part of an existing
// page.
func writeReport(path string, t *table, machine string) error {
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	text := fmt.Appendf(nil, page, machine, t.markdown())
	if i := bytes.Index(old, []byte(handwritten)); i >= 0 {
		text = append(text, old[i:]...)
	}
	return os.WriteFile(path, text, 0o644)
}
