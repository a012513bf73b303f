package manifest

import (
	"errors"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/berth-host/berth/internal/safetext"
	"github.com/berth-host/berth/internal/stack"
)

var serviceName = regexp.MustCompile(`^[a-z][a-z0-9]{0,19}$`)

const (
	maxNameLength   = 64 // characters of a stack's name
	maxStopTimeout  = time.Minute
	stopTimeout     = 10 * time.Second // of a service without one
	maxHealthLength = 1000
)

// checkName returns a stack's name without surrounding spaces.
func checkName(s string, f *faults) string {
	name := strings.TrimSpace(s)
	if n := utf8.RuneCountInString(name); n < 1 || n > maxNameLength || strings.ContainsFunc(name, unprintable) {
		f.addf("name %s is not valid; a stack's name is 1 to %d printable characters, as in name: guestbook", safetext.Quote(s), maxNameLength)
		return ""
	}
	return name
}

// firstName returns the first candidate that yields a name: characters that cannot be
// printed are removed, and a long one is cut.
func firstName(candidates ...string) string {
	for _, c := range candidates {
		c = strings.Join(strings.FieldsFunc(strings.ToValidUTF8(c, ""), unprintableOrSpace), " ")
		if runes := []rune(c); len(runes) > maxNameLength {
			c = strings.TrimSpace(string(runes[:maxNameLength]))
		}
		if strings.Trim(c, "./ ") != "" {
			return c
		}
	}
	return ""
}

func unprintable(r rune) bool        { return !unicode.IsPrint(r) }
func unprintableOrSpace(r rune) bool { return unprintable(r) || unicode.IsSpace(r) }

// hasControl reports whether s contains control characters that no command or value
// needs.
func hasControl(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool {
		return r < ' ' && r != '\n' && r != '\t' && r != '\r' || r == 0x7f
	})
}

// checkTTL parses a lifetime. A lifetime of 0 becomes the shortest above 0, which the
// limits refuse as well: 0 stands for a manifest without one.
func checkTTL(s string, f *faults) time.Duration {
	ttl, err := stack.ParseDuration(s)
	if err != nil {
		f.addf("ttl: %v", err)
		return 0
	}
	return max(ttl, 1)
}

func checkEmail(s string, f *faults) string {
	if err := stack.CheckEmail(s); err != nil {
		f.addf("claim_email %s %v", safetext.Quote(s), err)
		return ""
	}
	return s
}

func checkWebhook(s string, f *faults) string {
	if err := webhookFault(s); err != nil {
		f.addf("notify.webhook %s %v; write it as in https://example.com/hooks", safetext.Quote(redact(s)), err)
		return ""
	}
	return s
}

func webhookFault(s string) error {
	u, err := url.Parse(s)
	switch {
	case err != nil || len(s) > 2000 || strings.ContainsFunc(s, unprintableOrSpace):
		return errors.New("is not a URL")
	case u.Scheme != "http" && u.Scheme != "https":
		return errors.New("does not begin with http:// or https://")
	case u.Hostname() == "":
		return errors.New("has no host")
	case u.User != nil:
		return errors.New("holds a user name or password, which is not accepted")
	}
	if port, err := strconv.Atoi(u.Port()); u.Port() != "" && (err != nil || port < 1 || port > 65535) {
		return errors.New("has a port that does not exist")
	}
	return nil
}

// redact removes what precedes an @, which may be a password.
func redact(s string) string {
	if i := strings.LastIndex(s, "@"); i >= 0 {
		return "…" + s[i:]
	}
	return s
}

// serviceName returns the service's name, right or wrong; "" if it is left out.
func (d *decoder) serviceName() string {
	if d.fields["name"].missing() {
		d.faultf("it has no name; write one, as in name: web")
		return ""
	}
	s := d.text("name", "name: web")
	if s == nil {
		return ""
	}
	if !serviceName.MatchString(*s) {
		d.faultf("name %s is not valid; use 1 to 20 characters of a-z and 0-9, beginning with a letter, as in name: web", safetext.Quote(*s))
	}
	return *s // even a wrong one: the others may name it
}

// health returns the path that must answer; "" if it is left out or wrong.
func (d *decoder) health() string {
	s := d.text("health", "health: /healthz")
	if s == nil {
		return ""
	}
	if !strings.HasPrefix(*s, "/") {
		d.faultf("health %s does not begin with /; write a path, as in health: /healthz", safetext.Quote(*s))
		return ""
	}
	if _, err := url.ParseRequestURI(*s); err != nil || len(*s) > maxHealthLength || strings.ContainsFunc(*s, notURL) {
		d.faultf("health %s is not a path of a URL; write it as in health: /healthz", safetext.Quote(*s))
		return ""
	}
	return *s
}

func notURL(r rune) bool { return r <= ' ' || r > '~' || r == '#' }

// stopTimeout returns how long a process may take to stop; 0 if it is left out or
// wrong.
func (d *decoder) stopTimeout() time.Duration {
	s := d.text("stop_timeout", "stop_timeout: 10s")
	if s == nil {
		return 0
	}
	t, err := stack.ParseDurationLike(*s, "10s")
	switch {
	case err != nil:
		d.faultf("stop_timeout: %v", err)
		return 0
	case t < time.Second || t > maxStopTimeout:
		d.faultf("stop_timeout %s is not from 1s to 60s", *s)
		return 0
	}
	return t
}

func checkNames(services []draftService, f *faults) {
	seen := map[string]bool{}
	for _, s := range services {
		if s.name != "" && seen[s.name] {
			f.addf("service %s is named twice; give each service its own name", safetext.Name(s.name))
		}
		seen[s.name] = true
	}
}

// checkDependencies faults dependencies on unknown services, and circles.
func checkDependencies(services []draftService, f *faults) {
	depends := map[string][]string{}
	var names []string
	for _, s := range services {
		if s.name == "" {
			return // it is unknown which service is meant
		}
		names = append(names, s.name)
		depends[s.name] = s.dependsOn
	}
	for _, s := range services {
		for _, on := range s.dependsOn {
			if !slices.Contains(names, on) {
				f.addf("%s: depends_on names %s, but there is no such service; the services are %s", s.label, safetext.Quote(on), strings.Join(safetext.Names(names), ", "))
			}
		}
	}
	told := map[string]bool{}
	for _, name := range names {
		if circle := findCircle(depends, []string{name}); circle != nil && !told[circle[0]] {
			f.addf("depends_on forms a circle: %s", strings.Join(safetext.Names(circle), " -> "))
			for _, c := range circle {
				told[c] = true
			}
		}
	}
}

// findCircle follows the dependencies of the last service of trail until one leads back
// to the first; nil if none does.
func findCircle(depends map[string][]string, trail []string) []string {
	for _, on := range depends[trail[len(trail)-1]] {
		if on == trail[0] {
			return append(trail, on)
		}
		if slices.Contains(trail, on) {
			continue
		}
		if circle := findCircle(depends, append(slices.Clone(trail), on)); circle != nil {
			return circle
		}
	}
	return nil
}

// cleanFolder returns the shortest form of the folder that s names below its parent, or
// what is wrong with it.
func cleanFolder(s string) (string, error) {
	clean := path.Clean(s)
	switch {
	case strings.TrimSpace(s) == "":
		return "", errors.New(`is empty; write "." for the whole folder`)
	case path.IsAbs(s) || strings.Contains(s, `\`):
		return "", errors.New("must be a folder inside, with / between names and none at the beginning")
	case clean == ".." || strings.HasPrefix(clean, "../"):
		return "", errors.New("leads outside; write a folder inside, with no .. in it")
	case len(s) > 1000 || strings.ContainsFunc(s, unprintable):
		return "", errors.New("is not the name of a folder")
	}
	return clean, nil
}
