package integration

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// deleteAccount deletes an account as an operator does.
func (h *Host) deleteAccount(t *testing.T, email string) {
	t.Helper()
	_, err := h.berthd(t, "", "account", "delete", email, "--yes")
	require.NoError(t, err)
}

// isGone asserts that the stacks are deleted as by DELETE, perhaps a little later:
// their events say so, their URLs answer 404 and nothing is left.
func (h *Host) isGone(t *testing.T, stacks ...*Stack) {
	t.Helper()
	for _, st := range stacks {
		eventually(t, "the URL of a deleted stack is unknown", func() error {
			if status := h.get(t, st.url("web", "/")).status; status != http.StatusNotFound {
				return fmt.Errorf("it answers %d", status)
			}
			return nil
		})
		h.forgetStack(st.ID)
	}
	eventually(t, "nothing is left of the account's stacks", func() error {
		if left := h.objects(t); left != (objects{}) {
			return fmt.Errorf("there is %+v", left)
		}
		return nil
	})
	h.stop(t)
	db := h.openStore(t)
	defer db.Close()
	for _, st := range stacks {
		events, err := db.Events(t.Context(), st.ID, 0, 1000)
		require.NoError(t, err)
		require.Equal(t, "stack.deleted", string(events[len(events)-1].Type))
	}
}

// slow is a stack whose build does not end by itself.
const slow = `services: [{name: web, runtime: node, install: "", build: sleep 600, start: node server.js}]`

func TestAccountDelete_FromTheShellTakesTheStacksOfARunningServer(t *testing.T) {
	t.Parallel()
	h := start(t, reachesLoopback)
	hook := newHook(t)
	key, other := h.accountCreate(t, ana), h.accountCreate(t, bob)
	site, kept := h.deployAs(t, key, page("x"), hook.manifest()), h.deployAs(t, other, page("kept"), nil)
	live := h.deployAs(t, key, program(t), manifest(programManifest))
	building := h.post(t, archive(t, program(t)), manifest(slow), "", "Authorization", "Bearer "+key).stack(t)
	eventually(t, "the build runs", func() error {
		if log := h.getAs(t, key, "/v0/stacks/"+building.ID+"/logs?kind=build").body; !strings.Contains(log, "$ sleep 600") {
			return errors.New(log)
		}
		return nil
	})
	h.deleteAccount(t, ana)
	requireSigned(t, site, hook.awaitType(t, "stack.deleted"))

	h.getAs(t, key, "/v0/me").refused(t, http.StatusUnauthorized)
	h.post(t, archive(t, page("x")), nil, "", "Authorization", "Bearer "+key).refused(t, http.StatusUnauthorized)
	h.getAs(t, live.ManageToken, "/v0/stacks/"+live.ID).refused(t, http.StatusNotFound)
	require.Equal(t, "kept", h.get(t, kept.url("web", "/")).body)
	h.remove(t, kept)
	h.isGone(t, site, live, building)
}

func TestAccountDelete_WhileNoServerRunsIsCompletedByTheNext(t *testing.T) {
	t.Parallel()
	h := start(t)
	key := h.accountCreate(t, ana)
	st := h.deployAs(t, key, program(t), manifest(programManifest))
	h.stop(t)
	h.deleteAccount(t, ana)
	h.run(t)
	h.isGone(t, st)
}

func TestWeb_DeletesTheAccountWithItsStacks(t *testing.T) {
	t.Parallel()
	h := start(t, easy)
	b, watching := h.browser(t), h.browser(t)
	key := b.signUp(ana)
	st := h.deployAs(t, key, program(t), Fields{"manifest": programManifest, "name": "guestbook"})
	watching.signIn(ana, password)
	watching.open(stackPath(st))
	b.menu("Account")
	b.press("Delete account…")
	b.is(http.StatusOK, "/dashboard/account/delete")
	b.sees("Delete account?", "Also deletes 1 stack", "guestbook")
	b.look("account-delete")
	b.press("Cancel")
	b.is(http.StatusOK, "/dashboard/account")
	b.open("/dashboard/account/delete")
	b.fill("email", "guestbook", "current", password)
	b.press("Delete account")
	b.is(http.StatusUnprocessableEntity, "/dashboard/account/delete")
	b.sees("Nothing was deleted: type " + ana + " to delete this account.")
	b.look("account-delete-refused")
	require.Equal(t, http.StatusOK, h.getAs(t, key, "/v0/me").status)

	b.fill("email", ana, "current", password)
	b.press("Delete account")
	b.is(http.StatusOK, "/")
	b.sees("Your account was deleted, and 1 stack with it.")
	b.look("account-deleted")
	h.getAs(t, key, "/v0/me").refused(t, http.StatusUnauthorized)
	b.signIn(ana, password)
	b.is(http.StatusUnauthorized, "/signin")
	eventually(t, "the page that shows the stack leads to signing in", func() error {
		if at := watching.path(); at != "/signin" {
			return fmt.Errorf("it is at %s", at)
		}
		return nil
	})
	h.isGone(t, st)
}
