package web

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/stack"
)

func TestReadable_LeavesOutWhatTerminalsUnderstand(t *testing.T) {
	for line, want := range map[string]string{
		"plain\ttext":                                "plain\ttext",
		"\x1b[31mred\x1b[0m":                         "red",
		"\x1b[1;38:5:200mbold\x1b[K\x1b[?25h":        "bold",
		"\u009b31mred\u009bm":                        "red",
		"\x1b]8;;http://x\x1b\\link\x1b]8;;\a.":      "link.",
		"\x1b]0;title\atext \x1bP1$r\x1b\\\x1b(Bend": "text end",
		"\x1b7saved\x1b8 \x1bcreset":                 "saved reset",
		"50%\r100%\r":                                "50%100%",
		"bell\a":                                     "bell",
		"cut \x1b[":                                  "cut ",
		"broken \xff":                                "broken \uFFFD",
		"ümläut ✓":                                   "ümläut ✓",
		`console.log('\x1b[31mred')`:                 `console.log('\x1b[31mred')`,
	} {
		require.Equal(t, want, readable(line), "%q", line)
	}
}

// Errors are recorded with escape sequences in quoted text written out.
func TestPlainError_LeavesOutWhatTerminalsUnderstand(t *testing.T) {
	for reason, want := range map[string]string{
		"code 3:\n\x1b[31mError:\x1b[0m \x1b[1;38;5;200mC:\\repo\x1b[m is missing\n": "code 3:\nError: C:\\repo is missing\n",
		"\x1b[2K\x1b[1Gdone\x1b[?25l \x1b[1;1Hhome \u009b31mred\u009bm":              "done home red",
		"see \x1b]8;;http://x/y?z\x1b\\the docs\x1b]8;;\x1b\\.":                      "see the docs.",
		"\x1b]8;;http://x\alink\x1b]8;;\a and \x1b]0;C:\\work\atitle":                "link and title",
		"\x1b]0;not ended\nnext":      "0;not ended\nnext",
		"\x1b(Bend \x1b7saved\x1b8":   "end saved",
		`[1] C:\x\user "\u00e9" [31m`: `[1] C:\x\user "\u00e9" [31m`,
	} {
		s := stack.New("guestbook", []stack.Spec{{Name: "web"}}, stack.Now())
		_, err := s.DeployFailed(reason, stack.Now())
		require.NoError(t, err)
		require.Equal(t, want, plainError(s.Error), "%q", s.Error)
	}
}

func TestBrowser_IsNamedAsPeopleDo(t *testing.T) {
	for agent, want := range map[string]string{
		"Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0":                                                               "Firefox on Linux",
		"Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/141.0.0.0 Safari/537.36 Edg/141.0":            "Edge on Windows",
		"Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.0 Mobile/15E Safari/604.1": "Safari on iPhone",
		"Mozilla/5.0 (Linux; Android 15) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/141.0 Mobile Safari/537.36":                             "Chrome on Android",
		"curl/8.14.1": "curl",
		"":            "Unknown browser",
	} {
		require.Equal(t, want, browser(agent))
	}
}

func TestSentence_BeginsAndEndsLikeOne(t *testing.T) {
	require.Equal(t, "The email is wrong.", sentence("the email is wrong"))
	require.Equal(t, "Über 8.", sentence("über 8."))
	require.Empty(t, sentence(""))
}

func TestEvents_AllHaveTheirWords(t *testing.T) {
	for _, tt := range []struct {
		kind stack.EventType
		data map[string]any
		want string
	}{
		{stack.EventCreated, map[string]any{"anonymous": true}, "Created by an agent without an account"},
		{stack.EventCreated, map[string]any{"anonymous": false}, "Created with an API key"},
		{stack.EventRedeploying, map[string]any{"generation": 2.0}, "Deploying generation 2"},
		{stack.EventBuilding, map[string]any{"service": "web", "generation": 2.0}, "Building web for generation 2"},
		{stack.EventReady, map[string]any{"service": "web"}, "web is ready"},
		{stack.EventLive, map[string]any{"generation": 2.0}, "Generation 2 is live"},
		{stack.EventDeployFailed, map[string]any{"generation": 2.0, "serving_generation": 1.0}, "Generation 2 failed; generation 1 keeps serving"},
		{stack.EventFailed, nil, "Failed"},
		{stack.EventCrashed, map[string]any{"service": "web", "exit_code": 1.0, "crashes": 1.0}, "web crashed with exit code 1"},
		{stack.EventCrashed, map[string]any{"service": "web", "exit_code": 137.0, "crashes": 3.0}, "web crashed with exit code 137, 3 times in 1m30s"},
		{stack.EventCrashed, map[string]any{"service": "web", "exit_code": nil, "crashes": 2.0}, "web could not be restarted, 2 times in 1m30s"},
		{stack.EventRestarted, map[string]any{"service": "web"}, "web was restarted after its crash"},
		{stack.EventRestarted, map[string]any{"service": "web", "requested": true}, "web was restarted on request"},
		{stack.EventExtended, nil, "Time extended"},
		{stack.EventExpiring, nil, "About to expire"},
		{stack.EventExpired, nil, "Expired; can still be claimed"},
		{stack.EventClaimed, map[string]any{"by": ana}, "Claimed by " + ana},
		{stack.EventRestored, nil, "Restored without a rebuild"},
		{stack.EventAgentRevoked, nil, "The agent's access was revoked"},
		{stack.EventDeleted, nil, "Deleted"},
		{"stack.new_kind", nil, "stack.new_kind"},
	} {
		require.Equal(t, tt.want, describe(stack.Event{Type: tt.kind, Data: tt.data}, 90*time.Second))
	}
}

func TestEvents_TellErrorsInFull(t *testing.T) {
	v := new(pages).showEvents([]stack.Event{{Type: stack.EventFailed, Data: map[string]any{"error": "line 1\nline 2"}}})
	require.Equal(t, "line 1\nline 2", v[0].Detail)
	require.Equal(t, "bad", v[0].Tone)
}
