package integration

import (
	"fmt"
	"net/http"
	"strings"
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

// takes waits until a stack takes more, or less, of the disk than some bytes, as far as the server
// knows, and returns how many.
func (h *Host) takes(t *testing.T, st *Stack, from, to int) (bytes int) {
	t.Helper()
	eventually(t, fmt.Sprintf("the stack takes %d to %d bytes", from, to), func() error {
		shown := h.governs(t, "stacks", "show", st.ID)
		all, measured := shown["disk_bytes"].(float64)
		if bytes = int(all); !measured || bytes < from || bytes > to {
			return fmt.Errorf("it takes %v, of which data %v", shown["disk_bytes"], shown["data_bytes"])
		}
		return nil
	})
	return bytes
}

// grows makes the service web write megabytes that cannot be made smaller.
func (h *Host) grows(t *testing.T, st *Stack, megabytes int) {
	t.Helper()
	h.prints(t, st, fmt.Sprintf("head -c %d000000 /dev/urandom >$DATA_DIR/big", megabytes))
}

// ofSize is an archive of data with so many megabytes.
func ofSize(t *testing.T, megabytes int) []byte {
	t.Helper()
	return dataArchive(t, file("big", strings.Repeat("0123456789", megabytes*100_000)))
}

func TestStackDisk_OverTheLimitItTakesNoDeployAndNoLargerData(t *testing.T) {
	t.Parallel()
	h := start(t, with("BERTH_STACK_DISK", "20MB"))
	st := h.live(t, program(t), manifest(programManifest))
	h.put(t, st, "web", "kept", "text")
	h.grows(t, st, 21)
	h.takes(t, st, 21e6, 22e6)

	// The figures hold after a restart, and nothing of what is refused changes anything.
	h.restart(t)
	h.onceRestored(t, st, 1)
	before := h.eventTypes(t, st)
	for range 2 {
		r := h.postDeploy(t, st, program(t), nil)
		detail := r.refused(t, http.StatusInsufficientStorage)
		require.Contains(t, detail, "and may take 20 MB")
		require.Contains(t, detail, "berth data push")
		require.Equal(t, "60", r.header.Get("Retry-After"))
	}
	require.Contains(t, h.attempt(t, http.MethodPatch, "/v0/stacks/"+st.ID+"/env", `{"services": {"web": {"A": "b"}}}`, "Authorization", "Bearer "+st.ManageToken).refused(t, http.StatusInsufficientStorage), "may take 20 MB")
	require.Contains(t, h.pushData(t, st, "web", st.ManageToken, ofSize(t, 22)).refused(t, http.StatusInsufficientStorage), "nothing was replaced")
	require.Equal(t, before, h.eventTypes(t, st))
	require.Equal(t, "text", h.file(t, st, "web", "kept"))

	// Less data is taken, at first still too much, and then opens deploys.
	require.Equal(t, http.StatusOK, h.pushData(t, st, "web", st.ManageToken, ofSize(t, 20)).status)
	h.postDeploy(t, st, program(t), nil).refused(t, http.StatusInsufficientStorage)
	require.Equal(t, http.StatusOK, h.pushData(t, st, "web", st.ManageToken, ofSize(t, 2)).status)
	h.redeploy(t, st, program(t), manifest(programManifest))

	// So does a command that deletes data, or what lies beside it.
	for _, place := range []string{"$DATA_DIR", "/tmp"} {
		h.prints(t, st, "head -c 21000000 /dev/urandom >"+place+"/big")
		h.takes(t, st, 21e6, 24e6)
		h.postDeploy(t, st, program(t), nil).refused(t, http.StatusInsufficientStorage)
		h.prints(t, st, "rm "+place+"/big")
		h.redeploy(t, st, program(t), manifest(programManifest))
	}
}

func TestStackDisk_FarOverTheLimitItIsStopped(t *testing.T) {
	t.Parallel()
	h := start(t, with("BERTH_STACK_DISK", "20MB"))
	st := h.live(t, program(t), manifest(programManifest))
	h.put(t, st, "web", "kept", "text")
	h.runs(t, st, st.ManageToken, "head -c 30000000 /dev/urandom >$DATA_DIR/big", "1m") // it may be stopped under it
	eventually(t, "it is stopped", func() error {
		if now := h.show(t, st, ""); now.Status != "failed" {
			return fmt.Errorf("it is %s", now.Status)
		}
		return nil
	})
	now := h.show(t, st, "")
	require.Contains(t, *now.Error, "stopped at more than 1.2 times its disk space: the stack takes ")
	require.Contains(t, *now.Error, "may take 20 MB")
	require.Equal(t, "text", h.pullData(t, st, "web", "")["kept"])
	h.restart(t)
	require.Equal(t, "failed", h.show(t, st, "").Status)
	h.postDeploy(t, st, program(t), nil).refused(t, http.StatusInsufficientStorage)
	shown := h.governs(t, "stacks", "show", st.ID)
	require.Greater(t, shown["data_bytes"], 20e6, "the data of a stack that does not run is known")

	r := h.pushData(t, st, "web", st.ManageToken, dataArchive(t, file("kept", "less")))
	require.Equal(t, http.StatusOK, r.status, r.body)
	require.Equal(t, "failed", r.stack(t).Status)
	pulled := h.pullData(t, st, "web", "")
	require.Equal(t, "less", pulled["kept"])
	require.NotContains(t, pulled, "big")
	h.redeploy(t, st, program(t), manifest(programManifest))
	require.Equal(t, "less", h.file(t, st, "web", "kept"))
}

func TestQuota_OfDiskSpaceCountsWhatStacksTake(t *testing.T) {
	t.Parallel()
	h := start(t, with("BERTH_ACCOUNT_DISK", "20MB"))
	key := h.accountCreate(t, "ana@example.com")
	mine := h.deployAs(t, key, program(t), manifest(programManifest))
	h.redeploy(t, mine, program(t), manifest(programManifest))
	found := h.live(t, program(t), manifest(programManifest))
	h.grows(t, found, 21)
	h.takes(t, found, 21e6, 22e6)
	detail := h.claim(t, key, found.ClaimCode, "").refused(t, http.StatusTooManyRequests)
	require.Contains(t, detail, "your account's quota of disk space is 20 MB; its stacks take ")

	// What it has counts for a create, also over a restart, and never for a redeploy.
	r := h.runs(t, mine, key, "head -c 21000000 /dev/urandom >$DATA_DIR/big", "1m")
	require.Equal(t, http.StatusOK, r.status, r.body)
	h.takes(t, mine, 21e6, 22e6)
	h.restart(t)
	r = h.post(t, archive(t, page("more")), nil, "", "Authorization", "Bearer "+key)
	require.Contains(t, r.refused(t, http.StatusTooManyRequests), "your account's quota of disk space is 20 MB; its stacks take 21")
	require.Empty(t, r.header.Get("Retry-After"))
	h.redeploy(t, mine, program(t), manifest(programManifest))

	// There is room once it has less.
	require.Equal(t, http.StatusOK, h.delete(t, mine).status)
	h.forgetStack(mine.ID)
	h.owned(t, key, page("more"))
}
