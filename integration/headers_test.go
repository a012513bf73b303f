package integration

import (
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHeaders_EveryRequestHasAnID(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.live(t, page("hello"), nil)
	r := h.get(t, "/v0/stacks/"+st.ID, "X-Request-Id", "agent-7.1", "Authorization", "Bearer "+st.ManageToken)
	require.Equal(t, "agent-7.1", r.header.Get("X-Request-Id"))
	require.Len(t, r.header.Values("X-Request-Id"), 1)
	eventually(t, "the request is in the log", func() error {
		for line := range strings.Lines(h.log.String()) {
			if strings.Contains(line, `"request":"agent-7.1"`) {
				require.Contains(t, line, `"stack":"`+st.ID+`"`)
				require.Contains(t, line, `"status":200`)
				return nil
			}
		}
		return http.ErrNoLocation
	})
	require.NotContains(t, h.log.String(), st.ManageToken)
	for _, id := range []string{"", "a b", strings.Repeat("x", 200), `"}`} {
		r := h.get(t, "/healthz", "X-Request-Id", id)
		require.Regexp(t, `^[0-9a-f]{32}$`, r.header.Get("X-Request-Id"), id)
	}
}

func TestHeaders_PagesOfOtherOriginsReachTheAPIAndNotThePages(t *testing.T) {
	t.Parallel()
	h := start(t)
	preflight := func(path string) Reply {
		return h.do(t, h.request(t, http.MethodOptions, path, nil, "Origin", "https://example.com",
			"Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "content-type"))
	}
	r := preflight("/v0/stacks")
	require.Equal(t, http.StatusNoContent, r.status, r.body)
	require.Equal(t, "*", r.header.Get("Access-Control-Allow-Origin"))
	require.Contains(t, r.header.Get("Access-Control-Allow-Methods"), "POST")
	r = h.post(t, archive(t, page("hello")), nil, "", "Origin", "https://example.com", "Sec-Fetch-Site", "cross-site")
	require.Equal(t, http.StatusCreated, r.status, r.body)
	require.Equal(t, "*", r.header.Get("Access-Control-Allow-Origin"))
	require.Contains(t, r.header.Get("Access-Control-Expose-Headers"), "Location")
	require.Equal(t, h.base()+"/v0/stacks/"+r.stack(t).ID, r.header.Get("Location"))
	for _, path := range []string{"/signin", "/claim", "/dashboard"} {
		for _, r := range []Reply{preflight(path), h.get(t, path, "Origin", "https://example.com")} {
			for name := range r.header {
				require.NotContains(t, name, "Access-Control", path)
			}
		}
	}
}

func TestHeaders_LimitsTellWhatIsLeft(t *testing.T) {
	t.Parallel()
	h := start(t, with("BERTH_CREATES_PER_HOUR", "2"))
	source := archive(t, page("hello"))
	for _, tt := range []struct {
		status    int
		remaining string
		fields    Fields
	}{
		{http.StatusUnprocessableEntity, "2", Fields{"ttl": "1s"}},
		{http.StatusCreated, "1", nil},
		{http.StatusCreated, "0", nil},
		{http.StatusTooManyRequests, "0", nil},
	} {
		r := h.post(t, source, tt.fields, "")
		require.Equal(t, tt.status, r.status, r.body)
		require.Equal(t, "2", r.header.Get("RateLimit-Limit"))
		require.Equal(t, tt.remaining, r.header.Get("RateLimit-Remaining"))
		reset, err := strconv.Atoi(r.header.Get("RateLimit-Reset"))
		require.NoError(t, err)
		require.LessOrEqual(t, reset, 3600)
		require.Equal(t, tt.remaining != "2", reset > 0)
	}
}

func TestHeaders_HeadIsGetWithoutTheBody(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.live(t, page("hello"), nil)
	for _, path := range []string{"/healthz", "/v0/stacks/" + st.ID, "/v0/stacks/" + st.ID + "/logs?kind=build"} {
		r := h.do(t, h.request(t, http.MethodHead, path, nil, "Authorization", "Bearer "+st.ManageToken))
		require.Equal(t, http.StatusOK, r.status, path)
		require.Empty(t, r.body, path)
		require.Equal(t, h.getAs(t, st.ManageToken, path).header.Get("Content-Type"), r.header.Get("Content-Type"), path)
	}
}
