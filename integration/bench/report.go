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
How to read it. Each row compares two things that one run measured in turns; the ratio is the median of the pairs' ratios, Berth's figure divided by the peer's, so it says more than the figures themselves, which change with the machine and with what else it does. For requests a higher ratio is better, for everything else a lower one. A row without a peer shows the worst of its figures. A goal stands where the project has set itself one.

- **proxy**: the same static file from the same nginx, through Berth's public listener (edge and proxy, the process without the rest of the server), nginx, Caddy and a program of Go's ` + "`httputil.ReverseProxy`" + ` alone. wrk sends requests on 1 or 64 kept connections. CPU is the user and system time of the proxy's processes divided by the number of requests.
- **look at a kept connection**: before each request the proxy asks the kernel whether the connection that it is about to use again is open and silent. What one such look costs (the benchmark of it in ` + "`internal/proxy`" + `, 300,000 at a time), beside all that a request costs, in turns; on 64 connections a request costs least.
- **static**: a folder served by Berth as a static site, and by nginx with sendfile and its cache of open files.
- **memory**: how far the resident memory of a proxy that has just been started rises above what it has after 100 small requests, while 500 MB pass.
- **deploy**: from the start of the POST, which waits until the stack is live, to the first 200 at the public URL, for a Node program of 100 files whose install and build commands are ` + "`true`" + `, which take no time worth subtracting. By hand it is, over the engine's API: create a container, copy the files, start it, execute the two commands, commit, create and start the result, first 200 from its address. The plain way is on the engine's default network, to which Berth is held; the other makes a network for the program first, as Berth does for every stack.
- **static site live**: from the last byte of the upload to the first 200 at the public URL, for 100 files of 10 KB. By hand it is unpacking the same archive with tar into a folder that nginx serves.
- **switch**, **redeploy**: the same Node program is deployed again, unchanged. The switch is from its first answer of all, which is to the health check and which it notes itself, to the first answer of the new generation at the public URL, which is asked every 5 ms. The redeploy is from the start of the POST to its answer, which waits until the new generation is live.
- **crash**: the program ends itself when it is asked to at its public URL; from that request until the API shows the event, looked for every 5 ms.
- **restore of 1 GB**: 1,000 files of 1 MB in a stack's data folder. From the claim of the expired stack to the first 200 at the public URL; beside it, how long ` + "`tar -cf - | tar -xpf -`" + ` runs in a container that copies the same files from their volume to a new one.
- **100 live stacks**: each of one small program in a container on a network of its own. From the start of the server's process, while the containers run, until all public URLs have answered with 200; and its processor time over a minute in which nothing is asked of it, of one core.
- **neighbour**: the 99th percentile of a Node program's latencies over a second, asked every millisecond, while another stack uses something up at its ceilings of 256 processes, 512 MiB and half a core, beside the same while that stack does nothing.
- **webhooks**: the deliveries without the rest of the server (database, embedded Redis, dispatcher) to a receiver on the loopback that this program runs: all of 6,000 events that are recorded at once, beside bare POSTs of the same body on kept connections; from the recording of a single event to its arrival; and how far the memory rises with 100,000 deliveries to receivers that hang.
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
