package integration

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWeb_MetricsAreDrawnAndFollowWhatHappens(t *testing.T) {
	t.Parallel()
	h := start(t, easy)
	b, plain := h.browser(t), h.browser(t).withoutScripts()
	key := b.signUp(ana)
	plain.signIn(ana, password)
	st := h.deployAs(t, key, guestbook(t), manifest(guestbookManifest))
	b.open(stackPath(st))
	b.sees("Time to first byte", "Memory")
	require.Empty(t, drawn(b, "#api-requests .bar"))
	for range 20 {
		require.Equal(t, http.StatusOK, h.get(t, st.url("api", "/pid")).status)
		require.Equal(t, http.StatusNotFound, h.get(t, st.url("web", "/none.png")).status)
	}
	eventually(t, "the pictures show them without a reload", func() error {
		for element, want := range map[string]string{"#api-requests .bar": "s2", "#web-requests .bar": "s4", "#api-memory .line": "used", "#api-latency .line": "p50"} {
			if got := drawn(b, element); !strings.Contains(got, want) {
				return fmt.Errorf("%s has %q", element, got)
			}
		}
		return nil
	})
	require.Contains(t, drawn(b, "#api-requests .mark"), "deploy")
	require.Equal(t, "true", b.script(`String(document.documentElement.scrollWidth <= innerWidth)`))
	b.look("stack-metrics")
	plain.open(stackPath(st))
	require.Contains(t, plain.text(), "CPU of a core")
	plain.press("7 days")
	plain.is(http.StatusOK, plain.path())
	b.open("/dashboard")
	require.Contains(t, drawn(b, ".lately .line"), "used")
	b.look("list-metrics")
}

// drawn returns the classes of the elements of a picture.
func drawn(b *Tab, selector string) string {
	b.t.Helper()
	return b.script(fmt.Sprintf(`[...document.querySelectorAll(%q)].map((e) => e.getAttribute('class')).join()`, selector))
}
