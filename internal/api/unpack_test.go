package api

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/fair"
)

func TestUnpack_AnUploadWhoseTurnDoesNotComeIsAskedToComeAgain(t *testing.T) {
	e := newEnv(t)
	_, key := e.account("ana@example.com")
	st := e.creates(key)
	e.api.uploads.cfg.UnpackWait = time.Millisecond
	e.api.uploads.cfg.Unpacks = fair.NewQueue(1)
	done, err := e.api.uploads.cfg.Unpacks.Acquire(t.Context(), "somebody", nil)
	require.NoError(t, err)
	left := e.limiter.left
	body := func() reply {
		b, contentType := makeForm(t, sourcePart(site(t)))
		return e.send("POST", "/v0/stacks", "", b, "Content-Type", contentType)
	}
	for name, r := range map[string]reply{
		"create": body(), "deploy": e.redeploy(st.id, st.token), "validate": e.validates("", sourcePart(site(t))),
		"list of files": e.validatesJSON(`{"files": [{"path": "index.html"}]}`),
	} {
		require.Equal(t, 503, r.status, "%s: %s", name, r.body)
		require.Equal(t, "60", r.header.Get("Retry-After"), name)
		require.Contains(t, r.detail(), "waited 1ms for its turn", name)
	}
	require.Equal(t, left, e.limiter.left, "a create that was not unpacked counts")
	e.nothingLeft()
	done()
	e.api.uploads.cfg.UnpackWait = time.Minute
	require.Equal(t, 201, body().status)
}

func TestUnpack_ARequestIsCheckedWhileNothingCanBeUnpacked(t *testing.T) {
	e := newEnv(t)
	st := e.creates("")
	e.api.uploads.cfg.Unpacks = fair.NewQueue(1)
	done, err := e.api.uploads.cfg.Unpacks.Acquire(t.Context(), "somebody", nil)
	require.NoError(t, err)
	defer done()
	wrong := textPart("manifest", "services: [{name: web, runtime: cobol}]")
	require.Contains(t, e.refusedUpload(422, sourcePart(site(t)), wrong), "unknown runtime")
	require.Equal(t, 422, e.redeploy(st.id, st.token, sourcePart(site(t)), wrong).status)
	_, waiting := e.api.uploads.cfg.Unpacks.State()
	require.Zero(t, waiting)
}

func TestUnpack_ARequestWhoseCheckDoesNotComeIsAskedToComeAgain(t *testing.T) {
	e := newEnv(t)
	e.api.uploads.cfg.UnpackWait = time.Millisecond
	e.api.uploads.checks = fair.NewQueue(1)
	done, err := e.api.uploads.checks.Acquire(t.Context(), "somebody", nil)
	require.NoError(t, err)
	defer done()
	require.Contains(t, e.refusedUpload(503, sourcePart(site(t))), "too many uploads are being processed, and this one waited 1ms")
}

// barrier is an admission that blocks requests for room while it is shut.
type barrier struct {
	Admission
	shut atomic.Pointer[chan struct{}]
}

func (b *barrier) Admit(unclaimed bool) error {
	if opened := b.shut.Load(); opened != nil {
		<-*opened
	}
	return b.Admission.Admit(unclaimed)
}

func TestUnpack_TheNetworkWithTheFewestGoesFirstAndWhoLeavesIsOutOfTheLine(t *testing.T) {
	b := &barrier{}
	e := newEnv(t, func(c *Config) { b.Admission, c.Admission, c.Unpacks = c.Admission, b, fair.NewQueue(2) })
	queue := func(running, waiting int) {
		t.Helper()
		require.Eventually(t, func() bool { r, w := e.api.uploads.cfg.Unpacks.State(); return r == running && w == waiting }, time.Minute, time.Millisecond)
	}
	endFirst, err := e.api.uploads.cfg.Unpacks.Acquire(t.Context(), "192.0.2.1", nil)
	require.NoError(t, err)
	endOther, err := e.api.uploads.cfg.Unpacks.Acquire(t.Context(), "somebody", nil)
	require.NoError(t, err)

	create := func(ctx context.Context, address string) chan int {
		body, contentType := makeForm(t, sourcePart(site(t)))
		req := newRequest(t, "POST", "/v0/stacks", "", body, "Content-Type", contentType, "X-Test-Client", address).WithContext(ctx)
		status := make(chan int, 1)
		go func() {
			res, err := e.client.Do(req)
			if err != nil {
				status <- 0
				return
			}
			status <- readReply(t, res).status
		}()
		return status
	}
	ctx, leave := context.WithCancel(t.Context())
	second := create(ctx, "192.0.2.1")
	queue(2, 1)
	later := create(t.Context(), "192.0.2.2")
	queue(2, 2)
	opened := make(chan struct{})
	b.shut.Store(&opened)
	endOther()
	queue(2, 1) // the free slot is taken: by the network that has none, or leaving changes nothing
	leave()
	require.Equal(t, 0, <-second)
	queue(2, 0)
	b.shut.Store(nil)
	close(opened)
	require.Equal(t, 201, <-later)
	endFirst()
	queue(0, 0)
	e.nothingLeft()
}
