package integration

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// liar answers each request with its path. The first request for /lie gets an answer in
// the form that the service's name selects and, some time later, bytes that belong to no
// request.
const liar = `const net = require('net');
const own = (text) => 'HTTP/1.1 200 OK\r\nContent-Length: ' + text.length + '\r\n\r\n' + text;
const first = {
  head: 'HTTP/1.1 200 OK\r\nContent-Length: 60\r\n\r\n',
  nocontent: 'HTTP/1.1 204 No Content\r\n\r\n',
  notmodified: 'HTTP/1.1 304 Not Modified\r\nContent-Length: 60\r\n\r\n',
}[process.env.SERVICE_NAME] || own('/lie');
const stray = process.env.SERVICE_NAME === 'idle'
  ? 'HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 5\r\n\r\nstray' : own('stray');
let lied = false;
net.createServer((socket) => {
  let text = '';
  socket.on('error', () => {});
  socket.on('data', (d) => {
    text += d;
    for (let end; (end = text.indexOf('\r\n\r\n')) >= 0; text = text.slice(end + 4)) {
      const path = text.split(' ')[1];
      if (path !== '/lie' || lied) { socket.write(own(path)); continue; }
      lied = true;
      socket.write(first);
      setTimeout(() => socket.write(stray, () => console.log('lied')), 300);
    }
  });
}).listen(Number(process.env.PORT), '0.0.0.0');
`

func TestURLs_GiveEachClientItsOwnAnswer(t *testing.T) {
	t.Parallel()
	h := start(t)
	node := func(name string) string { return "{name: " + name + ", runtime: node, start: node server.js}" }
	for _, services := range [][]string{{"head", "nocontent", "notmodified", "beyond"}, {"idle"}} {
		nodes := make([]string, len(services))
		for i, name := range services {
			nodes[i] = node(name)
		}
		st := h.live(t, Tree{"server.js": liar}, manifest("services: ["+strings.Join(nodes, ", ")+"]"))
		for _, name := range services {
			method := http.MethodGet
			if name == "head" {
				method = http.MethodHead
			}
			h.do(t, h.request(t, method, st.url(name, "/lie"), nil))
			h.logged(t, st, "service="+name, "lied")
			for i := range 100 {
				own := fmt.Sprintf("/%d", i)
				r := h.get(t, st.url(name, own))
				if r.status != http.StatusBadGateway {
					require.Equal(t, own, r.body, "%s: client %d", name, i)
				}
			}
		}
	}
}

func TestURLs_EndExchangesOnWhichNoByteMoves(t *testing.T) {
	t.Parallel()
	h := start(t, with("BERTH_PROXY_TIMEOUT", "6s"))
	st := h.live(t, program(t), manifest(programManifest))
	events := h.stream(t, st.ManageToken, "/v0/stacks/"+st.ID+"/events")
	events.until(t, isNamed("stack.live"))
	gone := func(n float64) {
		t.Helper()
		eventually(t, "the service sees its clients leave", func() error {
			r := h.get(t, st.url("web", "/gone"))
			if r.status != http.StatusOK { // the limit holds for this, too
				return errors.New(r.String())
			}
			if v := r.json(t)["gone"]; v != n {
				return fmt.Errorf("%v are gone, want %v", v, n)
			}
			return nil
		})
	}

	// A client that does not read.
	conn := h.dial(t)
	_, err := fmt.Fprintf(conn, "GET /bytes?n=1000000000000 HTTP/1.1\r\nHost: %s\r\n\r\n", st.host("web"))
	require.NoError(t, err)
	gone(1)

	// A stream that has fallen silent.
	res, err := h.client.Do(h.request(t, http.MethodGet, st.url("web", "/sse"), nil))
	require.NoError(t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.Equal(t, "data: open\n\n", string(text))
	gone(2)

	// An upload that stops.
	conn = h.dial(t)
	_, err = fmt.Fprintf(conn, "POST /digest HTTP/1.1\r\nHost: %s\r\nContent-Length: 10\r\n\r\nhalf", st.host("web"))
	require.NoError(t, err)
	answers := bufio.NewReader(conn)
	res, err = http.ReadResponse(answers, nil)
	require.NoError(t, err)
	read(t, res).refused(t, http.StatusRequestTimeout)
	_, err = answers.ReadByte()
	require.ErrorIs(t, err, io.EOF)

	// The API's own streams were silent all the while.
	h.extend(t, st, "30m")
	events.until(t, isNamed("stack.extended"))
}

// A stream may last longer than the limit as long as bytes move on it.
func TestURLs_LetAStreamThatMovesGoOn(t *testing.T) {
	t.Parallel()
	h := start(t, with("BERTH_PROXY_TIMEOUT", "10s"))
	st := h.live(t, program(t), manifest(programManifest))
	res, err := h.client.Do(h.request(t, http.MethodGet, st.url("web", "/sse"), nil))
	require.NoError(t, err)
	defer res.Body.Close()
	stream := bufio.NewReader(res.Body)
	next := func() string {
		t.Helper()
		line, err := stream.ReadString('\n')
		require.NoError(t, err)
		_, err = stream.ReadString('\n')
		require.NoError(t, err)
		return line
	}
	require.Equal(t, "data: open\n", next())
	for i, begun := 0, time.Now(); time.Since(begun) < 15*time.Second; i++ {
		require.Equal(t, 200, h.get(t, st.url("web", fmt.Sprintf("/tick?data=%d", i))).status)
		require.Equal(t, fmt.Sprintf("data: %d\n", i), next())
		time.Sleep(50 * time.Millisecond)
	}
}
