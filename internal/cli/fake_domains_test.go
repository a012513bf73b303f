package cli

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
)

// ownsDomains refuses what only the owner of a claimed stack may do.
func ownsDomains(w http.ResponseWriter, r *http.Request, s *fakeStack) bool {
	switch {
	case !s.claimed:
		refuse(w, http.StatusConflict, "the stack is not claimed")
	case bearerOf(r) != fakeKey:
		refuse(w, http.StatusForbidden, "ask "+fakeEmail+" to do it")
	default:
		return true
	}
	return false
}

// viewDomain is the domain with a host, which is active if that begins with "live.".
func viewDomain(host string) map[string]any {
	v := map[string]any{
		"host": host, "service": "web", "status": "pending", "reason": "the TXT record _berth." + host + " is not there", "primary": false,
		"records":    []map[string]string{{"type": "CNAME", "name": host, "value": "web-1.localhost"}, {"type": "TXT", "name": "_berth." + host, "value": "0123"}},
		"checked_at": nil, "certificate_until": nil,
	}
	if strings.HasPrefix(host, "live.") {
		v["status"], v["reason"], v["primary"], v["certificate_until"] = "active", nil, true, 1767323045.25
	}
	return v
}

func (f *fake) listDomains(w http.ResponseWriter, r *http.Request, s *fakeStack) {
	if !ownsDomains(w, r, s) {
		return
	}
	views := []map[string]any{}
	for _, host := range s.domains {
		views = append(views, viewDomain(host))
	}
	answer(w, http.StatusOK, map[string]any{"domains": views})
}

func (f *fake) addDomain(w http.ResponseWriter, r *http.Request, s *fakeStack) {
	var in struct{ Host, Service string }
	switch err := json.NewDecoder(r.Body).Decode(&in); {
	case !ownsDomains(w, r, s):
	case err != nil || in.Service != "web":
		refuse(w, http.StatusUnprocessableEntity, "there is no service "+in.Service+"; the services are web")
	default:
		s.domains = append(s.domains, in.Host)
		answer(w, http.StatusCreated, viewDomain(in.Host))
	}
}

func (f *fake) removeDomain(w http.ResponseWriter, r *http.Request, s *fakeStack) {
	i := slices.Index(s.domains, r.PathValue("host"))
	switch {
	case !ownsDomains(w, r, s):
	case i < 0:
		refuse(w, http.StatusNotFound, "the stack does not have the domain "+r.PathValue("host"))
	default:
		s.domains = slices.Delete(s.domains, i, i+1)
		w.WriteHeader(http.StatusNoContent)
	}
}
