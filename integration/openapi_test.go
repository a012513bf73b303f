package integration

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"
	"github.com/stretchr/testify/require"
)

// witness sends requests on and holds what it sees of the API against the
// document at /openapi.json: every answer, and every request that was accepted.
// What does not agree fails the test when it ends.
type witness struct {
	transport *http.Transport
	h         *Host
}

// mostWitnessed bounds, in bytes, the requests that are decoded once more.
const mostWitnessed = 1 << 20

// RoundTrip is http.RoundTripper.
func (w *witness) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := w.transport.RoundTrip(req)
	if err != nil || !w.h.isAPI(req) {
		return res, err
	}
	contract, err := documentOf(w.transport, w.h)
	if err != nil {
		w.h.contradict(req, res.StatusCode, err)
		return res, nil
	}
	if isStream(res) {
		w.h.contradict(req, res.StatusCode, contract.check(req, res, nil))
		return res, nil
	}
	res.Body = &overheard{ReadCloser: res.Body, done: func(body []byte) {
		w.h.contradict(req, res.StatusCode, contract.check(req, res, body))
	}}
	return res, nil
}

// CloseIdleConnections is what http.Client's calls.
func (w *witness) CloseIdleConnections() { w.transport.CloseIdleConnections() }

// isAPI reports whether a request is for the API of this server.
func (h *Host) isAPI(req *http.Request) bool {
	host := req.URL.Host
	if req.Host != "" {
		host = req.Host
	}
	ours := host == strings.TrimPrefix(h.base(), "http://")
	return ours && (strings.HasPrefix(req.URL.Path, "/v0/") || req.URL.Path == "/healthz")
}

// contradict records what the document does not say.
func (h *Host) contradict(req *http.Request, status int, err error) {
	if err != nil {
		text, _, _ := strings.Cut(err.Error(), "\nSchema:")
		fmt.Fprintf(h.contradictions, "%s %s, answered %d: %s\n", req.Method, req.URL.Path, status, text)
	}
}

func isStream(res *http.Response) bool {
	return strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream")
}

// overheard is a body that reports what was read of it once it has been read to its end.
type overheard struct {
	io.ReadCloser
	heard bytes.Buffer
	done  func(body []byte)
}

func (o *overheard) Read(p []byte) (int, error) {
	n, err := o.ReadCloser.Read(p)
	o.heard.Write(p[:n])
	if errors.Is(err, io.EOF) && o.done != nil {
		o.done(o.heard.Bytes())
		o.done = nil
	}
	return n, err
}

// contract is the API document, read for checking: an object has the fields
// that the document names and no others.
type contract struct {
	router routers.Router
	agreed sync.Map // digests of what was checked before
}

var document struct {
	mu       sync.Mutex
	contract *contract
}

// documentOf is the document, as the first server that is asked serves it.
func documentOf(transport http.RoundTripper, h *Host) (*contract, error) {
	document.mu.Lock()
	defer document.mu.Unlock()
	if document.contract != nil {
		return document.contract, nil
	}
	res, err := (&http.Client{Transport: transport}).Get(h.base() + "/openapi.json")
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, err
	}
	document.contract, err = readContract(text)
	return document.contract, err
}

func readContract(text []byte) (*contract, error) {
	var tree map[string]any
	if err := json.Unmarshal(text, &tree); err != nil {
		return nil, err
	}
	delete(tree, "servers") // every server has a base URL of its own
	closeObjects(tree)
	text, err := json.Marshal(tree)
	if err != nil {
		return nil, err
	}
	doc, err := openapi3.NewLoader().LoadFromData(text)
	if err != nil {
		return nil, err
	}
	router, err := legacy.NewRouter(doc)
	if err != nil {
		return nil, err
	}
	return &contract{router: router}, nil
}

// closeObjects lets objects have no field besides those that are named.
func closeObjects(v any) {
	switch v := v.(type) {
	case map[string]any:
		if v["type"] == "object" && v["properties"] != nil && v["additionalProperties"] == nil {
			v["additionalProperties"] = false
		}
		for _, inner := range v {
			closeObjects(inner)
		}
	case []any:
		for _, inner := range v {
			closeObjects(inner)
		}
	}
}

// unnamed are the statuses that an operation may answer with although it does
// not name them.
var unnamed = []int{
	http.StatusMethodNotAllowed, http.StatusRequestTimeout, http.StatusRequestHeaderFieldsTooLarge,
	http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout,
}

// check returns what the document does not say about an exchange. The body of a
// stream is nil.
func (c *contract) check(req *http.Request, res *http.Response, body []byte) error {
	if req.Method == http.MethodHead || req.Method == http.MethodOptions {
		return nil
	}
	route, params, err := c.router.FindRoute(req)
	if err != nil {
		return checkError(res, body)
	}
	digest := sha256.Sum256(fmt.Appendf(nil, "%s %s %d %s %s", route.Method, route.Path, res.StatusCode, res.Header.Get("Content-Type"), body))
	if _, known := c.agreed.Load(digest); known && res.StatusCode >= 300 {
		return nil
	}
	input := &openapi3filter.RequestValidationInput{
		Request: again(req, route), PathParams: params, Route: route,
		Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, SkipSettingDefaults: true},
	}
	if err := checkResponse(input, res, body); err != nil {
		return err
	}
	c.agreed.Store(digest, true)
	if res.StatusCode >= 300 || input.Request == nil {
		return nil
	}
	return openapi3filter.ValidateRequest(context.Background(), input)
}

// checkError checks the answer to what the document does not have.
func checkError(res *http.Response, body []byte) error {
	var detail map[string]string
	if res.StatusCode < 400 || json.Unmarshal(body, &detail) != nil || len(detail) != 1 || detail["detail"] == "" {
		return fmt.Errorf("the document has no such operation, and the answer is not an error: %s", body)
	}
	return nil
}

func checkResponse(input *openapi3filter.RequestValidationInput, res *http.Response, body []byte) error {
	response := input.Route.Operation.Responses.Status(res.StatusCode)
	if response == nil && !slices.Contains(unnamed, res.StatusCode) {
		return errors.New("the operation does not name this status")
	}
	out := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: input, Status: res.StatusCode, Header: res.Header,
		Options: &openapi3filter.Options{IncludeResponseStatus: true, ExcludeResponseBody: body == nil},
	}
	if body == nil && res.StatusCode != http.StatusNoContent && response.Value.Content.Get(res.Header.Get("Content-Type")) == nil {
		return fmt.Errorf("the operation does not name the type %s", res.Header.Get("Content-Type"))
	}
	out.SetBodyBytes(body)
	if input.Request == nil {
		bare := *input
		bare.Request = &http.Request{Method: input.Route.Method}
		out.RequestValidationInput = &bare
	}
	return openapi3filter.ValidateResponse(context.Background(), out)
}

// again is the request as it was sent; nil when its body cannot be had again. A
// JSON body may come under another type, which the API does not look at.
func again(req *http.Request, route *routers.Route) *http.Request {
	copied := req.Clone(context.Background())
	if req.Body == nil || req.Body == http.NoBody {
		return copied
	}
	if req.GetBody == nil || req.ContentLength > mostWitnessed {
		return nil
	}
	body, err := req.GetBody()
	if err != nil {
		return nil
	}
	copied.Body = body
	if taken := route.Operation.RequestBody; taken != nil && taken.Value.Content["application/json"] != nil && taken.Value.Content["multipart/form-data"] == nil {
		copied.Header.Set("Content-Type", "application/json")
	}
	return copied
}

func TestOpenAPI_IsWhatTheServerSays(t *testing.T) {
	t.Parallel()
	h := start(t)
	r := h.get(t, "/openapi.json")
	require.Equal(t, http.StatusOK, r.status)
	require.Equal(t, "*", r.header.Get("Access-Control-Allow-Origin"))
	c, err := readContract([]byte(r.body))
	require.NoError(t, err)
	st := h.create(t, page("x"), nil)
	for name, wrong := range map[string]string{
		"an unknown field": `{"id":"` + st.ID + `","status":"deleted","more":1}`,
		"a missing field":  `{"id":"` + st.ID + `"}`,
		"another type":     `{"id":7,"status":"deleted"}`,
		"another value":    `{"id":"` + st.ID + `","status":"live"}`,
	} {
		req := h.request(t, http.MethodDelete, "/v0/stacks/"+st.ID, nil)
		res := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}}
		require.Error(t, c.check(req, res, []byte(wrong)), name)
		require.NoError(t, c.check(req, res, []byte(`{"id":"`+st.ID+`","status":"deleted"}`)))
		res.StatusCode = http.StatusTeapot
		require.Error(t, c.check(req, res, []byte(`{"detail":"no"}`)))
	}
}

func TestDocuments_AreServedAndLeadToEachOther(t *testing.T) {
	t.Parallel()
	h := start(t)
	front := h.get(t, "/")
	require.Equal(t, http.StatusOK, front.status)
	require.Equal(t, "text/plain; charset=utf-8", front.header.Get("Content-Type"))
	require.Contains(t, front.body, "tar -cz . | curl -sS -F source=@- '"+h.base()+"/v0/stacks?wait=true'")
	require.Contains(t, h.get(t, "/", "Accept", "text/html").body, "<!doctype html>")
	linked := 0
	for _, accept := range []string{"*/*", "text/html"} {
		for _, link := range h.get(t, "/", "Accept", accept).header.Values("Link") {
			for one := range strings.SplitSeq(link, ", ") {
				path, _, _ := strings.Cut(strings.TrimPrefix(one, "<"), ">")
				require.Equal(t, http.StatusOK, h.get(t, path, "Accept", accept).status, one)
				linked++
			}
		}
	}
	require.Equal(t, 8, linked)
	for word := range strings.FieldsSeq(h.get(t, "/llms.txt").body) {
		_, link, found := strings.Cut(word, "]("+h.base())
		if link = strings.TrimRight(link, "):,."); found && link != "/mcp" {
			require.Equal(t, http.StatusOK, h.get(t, link).status, word)
		}
	}
}
