package integration

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// ownAddress returns an IPv4 address of this machine that is not loopback.
func ownAddress(t *testing.T) string {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	require.NoError(t, err)
	for _, a := range addresses {
		if ip := a.(*net.IPNet).IP; ip.To4() != nil && ip.IsGlobalUnicast() {
			return ip.String()
		}
	}
	t.Skip("this machine has no address but loopback")
	return ""
}

// Connections of a client network are bounded before TLS and in both lanes; loopback, from
// which the rest of the test comes, is not counted.
func TestConnections_AreBoundedForEachClientNetwork(t *testing.T) {
	t.Parallel()
	for _, lane := range []string{"on", "off"} {
		for _, secure := range []bool{false, true} {
			t.Run("fast lane "+lane+", TLS "+strconv.FormatBool(secure), func(t *testing.T) {
				opts := []Option{with("BERTH_FAST_LANE", lane), with("BERTH_CONNS_PER_CLIENT", "2"), with("BERTH_APPS_DOMAIN", "apps.test")}
				c := newCertificate(t, "berth.test", "*.apps.test")
				if secure {
					dir := t.TempDir()
					cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
					require.NoError(t, os.WriteFile(cert, c.cert, 0o600))
					require.NoError(t, os.WriteFile(key, c.key, 0o600))
					opts = append(opts, with("BERTH_TLS", "files"), with("BERTH_TLS_CERT", cert), with("BERTH_TLS_KEY", key))
				}
				h := install(t, opts...)
				h.env["BERTH_LISTEN"] = ":" + strconv.Itoa(h.port)
				if secure {
					h.env["BERTH_BASE_URL"] = "https://berth.test:" + strconv.Itoa(h.port)
					h.overTLS(c, h.addr())
				}
				h.run(t)
				st := h.live(t, program(t), manifest(programManifest))
				host := "web-" + st.hex() + ".apps.test"

				address := net.JoinHostPort(ownAddress(t), strconv.Itoa(h.port))
				dial := func() net.Conn {
					nc, err := net.Dial("tcp", address)
					require.NoError(t, err)
					t.Cleanup(func() { nc.Close() })
					nc.SetDeadline(time.Now().Add(patience))
					if secure {
						return tls.Client(nc, &tls.Config{RootCAs: c.pool(), ServerName: host})
					}
					return nc
				}
				send := func(nc net.Conn) (*http.Response, error) {
					if _, err := io.WriteString(nc, "GET / HTTP/1.1\r\nHost: "+host+"\r\n\r\n"); err != nil {
						return nil, err
					}
					return http.ReadResponse(bufio.NewReader(nc), nil)
				}
				answered := func(nc net.Conn) {
					t.Helper()
					res, err := send(nc)
					require.NoError(t, err)
					require.Equal(t, http.StatusOK, res.StatusCode)
					_, err = io.Copy(io.Discard, res.Body)
					require.NoError(t, err)
				}
				first, second, third := dial(), dial(), dial()
				answered(second)
				answered(third)
				_, err := send(first)
				require.Error(t, err, "the longest idle connection was to make room")

				// A request whose body has not come is under way.
				for _, nc := range []net.Conn{second, third} {
					_, err := io.WriteString(nc, "POST / HTTP/1.1\r\nHost: "+host+"\r\nContent-Length: 1\r\n\r\n")
					require.NoError(t, err)
				}
				res, err := send(dial())
				if secure {
					require.Error(t, err, "a handshake was paid for a connection above the limit")
				} else {
					require.NoError(t, err)
					require.Equal(t, http.StatusServiceUnavailable, res.StatusCode)
					require.NotEmpty(t, res.Header.Get("Retry-After"))
				}
				for range 5 {
					require.Equal(t, http.StatusOK, h.get(t, "/healthz").status)
				}
			})
		}
	}
}
