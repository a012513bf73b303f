package integration

import (
	"bytes"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// postOnce sends a create with an Idempotency-Key, each time as a new form.
func (h *Host) postOnce(t *testing.T, source []byte, key, query string, headers ...string) Reply {
	t.Helper()
	return h.post(t, source, nil, query, append(headers, "Idempotency-Key", key)...)
}

// repeat is postOnce for a stack that is noted already.
func (h *Host) repeat(t *testing.T, source []byte, key string, headers ...string) Reply {
	t.Helper()
	body, contentType := form(t, source, nil)
	headers = append(headers, "Content-Type", contentType, "Idempotency-Key", key)
	return h.do(t, h.request(t, http.MethodPost, "/v0/stacks", bytes.NewReader(body), headers...))
}

func TestIdempotency_ARepeatedCreateIsTheFirst(t *testing.T) {
	t.Parallel()
	h := start(t, with("BERTH_CREATES_PER_HOUR", "2"))
	source := archive(t, page("hello"))
	first := h.postOnce(t, source, "key-1", "?wait=true")
	require.Equal(t, http.StatusCreated, first.status, first.body)
	require.Equal(t, "live", first.stack(t).Status)
	h.restart(t)
	for range 3 { // more than the limit has room for
		again := h.postOnce(t, source, "key-1", "?wait=true")
		require.Equal(t, http.StatusCreated, again.status, again.body)
		require.Equal(t, first.body, again.body)
		require.Equal(t, "true", again.header.Get("Idempotent-Replayed"))
		require.Equal(t, first.header.Get("Location"), again.header.Get("Location"))
	}
	st := first.stack(t)
	require.Equal(t, http.StatusOK, h.getAs(t, st.ManageToken, "/v0/stacks/"+st.ID).status)
	other := h.postOnce(t, archive(t, page("other")), "key-1", "")
	require.Contains(t, other.refused(t, http.StatusUnprocessableEntity), "another body")
	require.Equal(t, http.StatusCreated, h.postOnce(t, source, "key-2", "").status)
}

func TestIdempotency_ManyAtOnceMakeOneStack(t *testing.T) {
	t.Parallel()
	h := start(t)
	key := h.accountCreate(t, "ana@example.com")
	source := archive(t, page("hello"))
	replies := make(chan Reply, 8)
	count := atOnce(cap(replies), func() int {
		r := h.postOnce(t, source, "key-1", "", "Authorization", "Bearer "+key)
		replies <- r
		return r.status
	})
	close(replies)
	require.Equal(t, cap(replies), count[http.StatusCreated]+count[http.StatusConflict], "%v", count)
	require.NotZero(t, count[http.StatusCreated])
	ids := map[string]bool{}
	for r := range replies {
		if r.status == http.StatusConflict {
			require.NotEmpty(t, r.header.Get("Retry-After"))
			continue
		}
		ids[r.stack(t).ID] = true
	}
	require.Len(t, ids, 1)
	me := h.getAs(t, key, "/v0/me").json(t)
	require.Len(t, me["stacks"], 1)
}

func TestIdempotency_OneTimeFieldsAreForTheAddressThatSentTheFirst(t *testing.T) {
	t.Parallel()
	h := start(t, with("BERTH_TRUSTED_PROXIES", "127.0.0.1/32"))
	source := archive(t, page("hello"))
	first := h.postOnce(t, source, "key-1", "", "X-Forwarded-For", "2001:db8::1")
	require.Equal(t, http.StatusCreated, first.status, first.body)
	again := h.repeat(t, source, "key-1", "X-Forwarded-For", "2001:db8::1").stack(t)
	require.Equal(t, first.stack(t).ManageToken, again.ManageToken)
	require.Equal(t, first.stack(t).ClaimCode, again.ClaimCode)
	neighbour := h.repeat(t, source, "key-1", "X-Forwarded-For", "2001:db8::2").stack(t)
	require.Equal(t, first.stack(t).ID, neighbour.ID)
	require.Empty(t, neighbour.ManageToken+neighbour.ClaimCode+neighbour.ClaimURL+neighbour.Note)
	stranger := h.postOnce(t, source, "key-1", "", "X-Forwarded-For", "192.0.2.7").stack(t)
	require.NotEqual(t, first.stack(t).ID, stranger.ID)
}

func TestIdempotency_ARepeatedDeployRunsOnce(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.live(t, page("one"), nil)
	deploy := func(key string, source []byte) Reply {
		body, contentType := form(t, source, nil)
		return h.do(t, h.request(t, http.MethodPost, "/v0/stacks/"+st.ID+"/deploy?wait=true", bytes.NewReader(body),
			"Content-Type", contentType, "Authorization", "Bearer "+st.ManageToken, "Idempotency-Key", key))
	}
	source := archive(t, page("two"))
	first := deploy("key-1", source)
	require.Equal(t, http.StatusOK, first.status, first.body)
	require.Equal(t, 2, first.stack(t).Generation)
	require.Equal(t, 3, deploy("key-2", archive(t, page("three"))).stack(t).Generation)
	h.kill(t)
	h.run(t)
	again := deploy("key-1", source)
	require.Equal(t, http.StatusOK, again.status, again.body)
	require.Equal(t, first.body, again.body, "not the first answer")
	require.Equal(t, 3, h.show(t, st, "").Generation, "it ran again")
	require.Contains(t, h.get(t, st.url("web", "/")).body, "three")
}
