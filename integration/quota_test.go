package integration

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestQuota_OfStacksCountsCreatesAndClaimsButNotRedeploys(t *testing.T) {
	t.Parallel()
	h := start(t, with("BERTH_ACCOUNT_STACKS", "1"))
	ana, bob := h.accountCreate(t, "ana@example.com"), h.accountCreate(t, "bob@example.com")
	const refusal = "your account's quota of stacks is 1, and it has 1; delete one first"
	mine := h.owned(t, ana, page("mine"))

	// Another stack is refused, whether it is made or claimed, and nothing of it is left.
	r := h.post(t, archive(t, page("more")), nil, "", "Authorization", "Bearer "+ana)
	require.Equal(t, refusal, r.refused(t, http.StatusTooManyRequests))
	require.Empty(t, r.header.Get("Retry-After"))
	st := h.live(t, page("found"), nil)
	require.Equal(t, refusal, h.claim(t, ana, st.ClaimCode, "").refused(t, http.StatusTooManyRequests))

	// A redeploy counts nowhere, and an account has its own quota.
	h.redeploy(t, mine, page("mine, again"), nil)
	other := h.owned(t, bob, page("bob's"))
	require.NotEqual(t, mine.ID, other.ID)

	// The code is still good once there is room.
	require.Equal(t, http.StatusOK, h.delete(t, mine).status)
	h.forgetStack(mine.ID)
	require.Equal(t, http.StatusOK, h.claim(t, ana, st.ClaimCode, "").status)
}

func TestQuota_GivesTheLastPlaceToOneOfManyClaims(t *testing.T) {
	t.Parallel()
	h := start(t, with("BERTH_ACCOUNT_STACKS", "1"))
	key := h.accountCreate(t, "ana@example.com")
	codes := make(chan string, 3)
	for range cap(codes) {
		codes <- h.live(t, page("x"), nil).ClaimCode
	}
	statuses := atOnce(cap(codes), func() int { return h.claim(t, key, <-codes, "").status })
	require.Equal(t, map[int]int{http.StatusOK: 1, http.StatusTooManyRequests: 2}, statuses)
}

func TestQuota_OfMemoryCountsTheLimitsOfServices(t *testing.T) {
	t.Parallel()
	h := start(t, with("BERTH_SERVICE_MEMORY", "128MB"), with("BERTH_ACCOUNT_MEMORY", "200MB"))
	key := h.accountCreate(t, "ana@example.com")
	h.owned(t, key, program(t))
	h.owned(t, key, page("without a process"))
	r := h.post(t, archive(t, program(t)), nil, "", "Authorization", "Bearer "+key)
	require.Equal(t, "your account's quota of memory is 200 MB; the services of its stacks may use 128 MB, and those of this one another 128 MB; delete a stack, or deploy fewer services",
		r.refused(t, http.StatusTooManyRequests))
}
