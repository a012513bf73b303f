package integration

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Reply is a whole response.
type Reply struct {
	status int
	header http.Header
	body   string
}

func (r Reply) String() string { return fmt.Sprintf("%d %s", r.status, r.body) }

// do sends a request and reads its answer.
func (h *Host) do(t *testing.T, req *http.Request) Reply {
	t.Helper()
	res, err := h.client.Do(req)
	require.NoError(t, err)
	return read(t, res)
}

// attempt makes a request that the server may die under. It returns the zero
// Reply when there is no answer.
func (h *Host) attempt(t *testing.T, method, url, body string, headers ...string) Reply {
	t.Helper()
	res, err := h.client.Do(h.request(t, method, url, strings.NewReader(body), headers...))
	if err != nil {
		return Reply{}
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return Reply{}
	}
	return Reply{res.StatusCode, res.Header, string(text)}
}

func read(t *testing.T, res *http.Response) Reply {
	t.Helper()
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return Reply{res.StatusCode, res.Header, string(body)}
}

// request makes a request to a path of the API, or to a whole URL. The headers
// are names and values in turn; a Host among them is the request's host.
func (h *Host) request(t *testing.T, method, url string, body io.Reader, headers ...string) *http.Request {
	t.Helper()
	if strings.HasPrefix(url, "/") {
		url = h.base() + url
	}
	req, err := http.NewRequestWithContext(t.Context(), method, url, body)
	require.NoError(t, err)
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			req.Host = headers[i+1]
			continue
		}
		req.Header.Add(headers[i], headers[i+1])
	}
	return req
}

// get asks for a path of the API, or a whole URL such as a service's.
func (h *Host) get(t *testing.T, url string, headers ...string) Reply {
	t.Helper()
	return h.do(t, h.request(t, http.MethodGet, url, nil, headers...))
}

// getAs asks for a path of the API with a token.
func (h *Host) getAs(t *testing.T, token, path string) Reply {
	t.Helper()
	return h.get(t, path, "Authorization", "Bearer "+token)
}

// atOnce makes n requests at the same time and counts their statuses; one that
// failed has 0.
func atOnce(n int, do func() (status int)) map[int]int {
	var mu sync.Mutex
	count := map[int]int{}
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			status := 0
			defer func() {
				mu.Lock()
				defer mu.Unlock()
				count[status]++
			}()
			status = do()
		})
	}
	all.Wait()
	return count
}
