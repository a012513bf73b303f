package integration

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// swallow takes a request and never answers it.
func swallow(_ *engineProxy, _ http.ResponseWriter, req *http.Request) { <-req.Context().Done() }

// silence has the engine answer nothing any more, until clear.
func (p *engineProxy) silence() {
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodDelete} {
		p.add(method, ".*", -1, swallow)
	}
}

// An engine that accepts requests and answers none holds up no delete for good,
// whatever the stack is doing, and no end of the server. The next server finishes
// what was begun.
func TestEngineSilence_HoldsUpNoDeleteAndNoShutdown(t *testing.T) {
	t.Parallel()
	p := startProxy(t)
	h := start(t, through(p), asShipped)
	kept := h.live(t, program(t), manifest(programManifest))
	gone := h.live(t, program(t), manifest(programManifest))
	p.silence()
	begun := h.create(t, program(t), manifest(programManifest))
	require.Equal(t, "building", begun.Status)

	stacks := make(chan *Stack, 2)
	stacks <- gone
	stacks <- begun
	require.Equal(t, map[int]int{http.StatusOK: 2}, atOnce(2, func() int { return h.delete(t, <-stacks).status }))
	for _, st := range []*Stack{gone, begun} {
		h.getAs(t, st.ManageToken, "/v0/stacks/"+st.ID).refused(t, http.StatusNotFound)
		h.get(t, st.url("web", "/")).refused(t, http.StatusNotFound)
		h.forgetStack(st.ID)
	}
	require.Equal(t, "hello from web", h.get(t, kept.url("web", "/")).body)
	h.stop(t)

	p.clear()
	h.run(t)
	h.keeps(t, kept, serving(kept)...)
	require.Equal(t, "hello from web", h.get(t, kept.url("web", "/")).body)
	eventually(t, "nothing is left of the deleted stacks", func() error {
		for _, st := range []*Stack{gone, begun} {
			if has := h.has(t, st); len(has) > 0 {
				return fmt.Errorf("of %s there is %v", st.ID, has)
			}
		}
		return nil
	})
}
