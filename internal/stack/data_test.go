package stack

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestCheckData_NeedsAServiceThatHasIt(t *testing.T) {
	now := Now()
	for name, c := range map[string]struct {
		change           func(*Stack)
		service          string
		reads, replacing Kind // of the error; 0 for none
	}{
		"live":                      {nil, "web", 0, 0},
		"unknown":                   {nil, "other", NotFound, NotFound},
		"a static site":             {nil, "site", Conflict, Conflict},
		"building":                  {func(s *Stack) { s.Status = Building }, "web", Conflict, Conflict},
		"a deploy":                  {func(s *Stack) { s.Deploying = 2 }, "web", Conflict, Conflict},
		"expired":                   {func(s *Stack) { s.Status = Expired }, "web", Conflict, Conflict},
		"about to expire":           {func(s *Stack) { s.ExpiresAt = now.Add(-time.Second) }, "web", Conflict, Conflict},
		"failed":                    {func(s *Stack) { s.Status = Failed }, "web", 0, 0},
		"a failed stack's database": {func(s *Stack) { s.Status = Failed }, "db", Conflict, 0},
	} {
		st, _ := withDatabases()
		st.Status, st.Deploying, st.ExpiresAt = Live, 0, now.Add(time.Hour)
		st.Generation.Services = append(st.Generation.Services, Service{Spec: Spec{Name: "site", Runtime: Runtime{"static", ""}}})
		if c.change != nil {
			c.change(st)
		}
		require.Equal(t, c.reads, KindOf(st.CheckDataRead(c.service, now)), "%s, reading", name)
		require.Equal(t, c.replacing, KindOf(st.CheckData(c.service, now)), "%s, replacing", name)
	}
}
