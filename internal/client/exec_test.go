package client

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"testing"
)

// serveCommand answers the request for a command with a stream.
func serveCommand(t *testing.T, text string) *Client {
	return serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if got := r.Method + " " + r.URL.Path + " " + string(body); got != `POST /v0/stacks/stk_1/services/web/exec {"command":"ls","timeout":"5m"}` {
			t.Error(got)
		}
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, text)
	})
}

var listing = Command{Service: "web", Line: "ls", Timeout: "5m"}

func TestExec_CallsForEachLineAndReturnsTheEnd(t *testing.T) {
	c := serveCommand(t, ": still here\n\ndata: {\"line\":\"a: b\"}\n\n: still here\n\ndata: {\"line\":\"c\",\"partial\":true}\n\nevent: exit\ndata: {\"exit_code\":3,\"truncated\":true,\"timed_out\":false}\n\n")
	var lines []OutputLine
	end, err := c.Exec(t.Context(), "stk_1", listing, func(l OutputLine) error { lines = append(lines, l); return nil })
	if err != nil || *end.ExitCode != 3 || !end.Truncated || end.TimedOut {
		t.Errorf("%+v, %v", end, err)
	}
	if want := []OutputLine{{"a: b", false}, {"c", true}}; !reflect.DeepEqual(lines, want) {
		t.Errorf("lines %v, want %v", lines, want)
	}
}

func TestExec_ReturnsWhyThereIsNoEnd(t *testing.T) {
	full := errors.New("disk full")
	line := func(OutputLine) error { return full }
	for text, want := range map[string]func(error) bool{
		"event: end\ndata: {\"detail\":\"not now\"}\n\n": func(err error) bool { return IsStatus(err, 409) && err.Error() == "not now" },
		"data: {\"line\":\"a\"}\n\n":                     func(err error) bool { return errors.Is(err, full) },
		"event: exit\ndata: {\"exit_c":                   IsUnreachable,
		"event: exit\ndata: x\n\n":                       IsUnreachable,
		"":                                               IsUnreachable,
	} {
		if end, err := serveCommand(t, text).Exec(t.Context(), "stk_1", listing, line); end != nil || !want(err) {
			t.Errorf("%q: %+v, %v", text, end, err)
		}
	}
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) { reply(w, 200, `{}`) })
	if _, err := c.Exec(t.Context(), "stk_1", listing, line); !IsStatus(err, 502) {
		t.Errorf("without a stream: %v", err)
	}
}
