package mcp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/berth-host/berth/internal/fair"
	"github.com/berth-host/berth/internal/plainjson"
	"github.com/berth-host/berth/internal/slowbody"
)

// Limits on what calls hold in memory while they arrive.
const (
	maxCall    = 4 << 20  // bytes of one call; inline files are part of it
	smallCall  = 16 << 10 // bytes of a call that needs no place
	largeCalls = 32       // places: calls that are larger and read at the same time
	ownPlaces  = 4        // places for one network
	busyRetry  = "5"      // Retry-After in seconds where no place is free
)

// handler reads whole calls and passes them to the tools.
type handler struct {
	tools   http.Handler
	network func(*http.Request) string
	own     *fair.Places // for each network, taken while a large call is read
	all     *fair.Places // for all together
}

// take takes a place for a caller's network until leave is called, once. It fails with
// errBusy or errOwn if none is free.
func (h *handler) take(network string) (leave func(), err error) {
	leaveOwn, ok := h.own.Take(network)
	if !ok {
		return nil, errOwn
	}
	leaveAll, ok := h.all.Take("")
	if !ok {
		leaveOwn()
		return nil, errBusy
	}
	return func() { leaveAll(); leaveOwn() }, nil
}

// Handler returns a handler that offers the tools over streamable HTTP, without
// sessions: each request stands alone and brings the caller's Authorization. network
// returns the name of the caller's network.
func Handler(cfg Config, network func(*http.Request) string) http.Handler {
	server := newServer(cfg)
	tools := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, &sdk.StreamableHTTPOptions{
		Stateless:                    true,
		MaxRequestBodyBytes:          maxCall,
		PropagateRequestCancellation: true,
		// Which hosts are served is settled before a request comes here.
		DisableLocalhostProtection: true,
	})
	return &handler{tools: tools, network: network, own: fair.NewPlaces(ownPlaces), all: fair.NewPlaces(largeCalls)}
}

// ServeHTTP implements http.Handler.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		refuse(w, http.StatusMethodNotAllowed, "this address is for clients of the Model Context Protocol, which POST to it; add it to your client as a server with the streamable HTTP transport")
		return
	}
	call, err := h.read(w, r)
	if err != nil {
		refuseCall(w, len(call), err)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(call))
	h.tools.ServeHTTP(w, r)
}

// Why a call is refused, as its sender reads it.
var (
	errBusy    = errors.New("too many large calls are being sent to this server at once; send this one again in a few seconds")
	errOwn     = fmt.Errorf("%d large calls from your network are being sent to this server already; wait for one of them, or send this one again in a few seconds", ownPlaces)
	errNotJSON = errors.New(`the call is not JSON; a call of the Model Context Protocol looks like this: {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}`)
)

// read reads a call. If it fails, it returns the bytes read so far and the reason.
func (h *handler) read(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	conn := http.NewResponseController(w)
	body := slowbody.NewReader(http.MaxBytesReader(w, r.Body, maxCall), conn.SetReadDeadline)
	call, err := io.ReadAll(io.LimitReader(body, smallCall+1))
	if err == nil && len(call) > smallCall {
		leave, full := h.take(h.network(r))
		if full != nil {
			return call, full
		}
		defer leave()
		var rest []byte
		rest, err = io.ReadAll(body)
		call = append(call, rest...)
	}
	if err == nil {
		err = conn.SetReadDeadline(time.Time{}) // otherwise it would end the wait for the tool, too
	}
	if err == nil && !json.Valid(call) {
		err = errNotJSON
	}
	if fault := plainjson.Fault(call); err == nil && fault != "" {
		err = textError(fault)
	}
	return call, err
}

// textError is what is wrong with the characters of a call.
type textError string

// Error implements error.
func (e textError) Error() string {
	return "the call " + string(e) + "; send files that are not text in binary_files, as base64"
}

// refuseCall refuses a call that was read only in part: its first read bytes.
func refuseCall(w http.ResponseWriter, read int, err error) {
	var large *http.MaxBytesError
	var text textError
	switch {
	case errors.Is(err, errBusy), errors.Is(err, errOwn):
		w.Header().Set("Retry-After", busyRetry)
		refuse(w, http.StatusServiceUnavailable, err.Error())
	case errors.As(err, &large):
		refuse(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("the call is larger than %d MiB; leave out what is not source, or send the project as an archive to the HTTP API", maxCall>>20))
	case errors.Is(err, errNotJSON), errors.As(err, &text):
		refuse(w, http.StatusBadRequest, err.Error())
	case slowbody.Stalled(err):
		refuse(w, http.StatusBadRequest, fmt.Sprintf("the call stalled after %d bytes: nothing arrived for %s, or less than %d KiB a second in all; send it again", read, slowbody.Stall, slowbody.Least>>10))
	default:
		refuse(w, http.StatusBadRequest, fmt.Sprintf("the call broke off after %d bytes; send it again", read))
	}
}

// refuse answers with an error in the API's form.
func refuse(w http.ResponseWriter, status int, detail string) {
	body, _ := json.Marshal(map[string]string{"detail": detail}) // strings always encode
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body)
}
