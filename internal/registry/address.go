package registry

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"

	"github.com/berth-host/berth/internal/engine"
)

// errAddress is what is wrong with an address that cannot be parsed.
var errAddress = errors.New("write [http://|https://]host[:port][/prefix], without a user or password: those go into the file of BERTH_REGISTRY_AUTH_FILE")

// Address is where a registry is.
type Address struct {
	Scheme string // http or https
	Host   string // host[:port]
	Prefix string // of repositories: "", or a path that ends with a slash
}

// ParseAddress parses the value of BERTH_REGISTRY.
func ParseAddress(text string) (Address, error) {
	if !strings.Contains(text, "://") {
		text = "https://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.User != nil || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.Scheme != "http" && u.Scheme != "https" {
		return Address{}, errAddress
	}
	a := Address{Scheme: u.Scheme, Host: u.Host, Prefix: strings.Trim(u.Path, "/")}
	if a.Prefix != "" {
		a.Prefix += "/"
	}
	if _, err := name.NewRepository(a.Host+"/"+a.Prefix+"stacks/0", name.StrictValidation); err != nil {
		return Address{}, errAddress
	}
	if a.Host == "docker.io" || a.Host == "index.docker.io" {
		return Address{}, errors.New("the registry cannot be Docker Hub, which has no repositories below a prefix, such as one for each stack; name another one")
	}
	return a, nil
}

// HostPort returns the host with its port.
func (a Address) HostPort() string {
	if _, _, err := net.SplitHostPort(a.Host); err == nil {
		return a.Host
	}
	port := "443"
	if a.Scheme == "http" {
		port = "80"
	}
	return net.JoinHostPort(strings.Trim(a.Host, "[]"), port)
}

// Exposed reports whether what is sent there can be read on the way: it is another machine,
// without TLS.
func (a Address) Exposed() bool {
	host, _, _ := net.SplitHostPort(a.HostPort())
	ip, err := netip.ParseAddr(host)
	return a.Scheme == "http" && host != "localhost" && (err != nil || !ip.IsLoopback())
}

// image returns the reference in the registry of an image.
func (a Address) image(repository, tag string) string {
	return a.Host + "/" + a.Prefix + repository + ":" + tag
}

// loginOf returns the login of a registry's host from a file like Docker's config.json. It
// runs no credential helper.
func loginOf(file, host string) (engine.Login, error) {
	if file == "" {
		return engine.Login{}, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return engine.Login{}, fmt.Errorf("BERTH_REGISTRY_AUTH_FILE: %w", err)
	}
	var config struct {
		Auths map[string]struct {
			Auth, Username, Password, IdentityToken string
		}
	}
	if json.Unmarshal(text, &config) != nil { // whose error may quote a secret
		return engine.Login{}, fmt.Errorf("BERTH_REGISTRY_AUTH_FILE: %s is not JSON like Docker's config.json", file)
	}
	for server, found := range config.Auths {
		_, rest, ok := strings.Cut(server, "://")
		if !ok {
			rest = server
		}
		if at, _, _ := strings.Cut(rest, "/"); at != host {
			continue
		}
		login := engine.Login{User: found.Username, Password: found.Password, Token: found.IdentityToken}
		if found.Auth != "" {
			pair, err := base64.StdEncoding.DecodeString(found.Auth)
			user, password, ok := strings.Cut(strings.TrimRight(string(pair), "\x00"), ":")
			if err != nil || !ok {
				return engine.Login{}, fmt.Errorf("BERTH_REGISTRY_AUTH_FILE: the auth of %s in %s is not user:password in base64", host, file)
			}
			login.User, login.Password = user, password
		}
		return login, nil
	}
	return engine.Login{}, fmt.Errorf("BERTH_REGISTRY_AUTH_FILE: %s has nothing under auths for %s; run docker login %s there", file, host, host)
}

// Times that a registry may take.
const (
	dialTime   = 5 * time.Second
	answerTime = 30 * time.Second // to answer once it has the whole request
)

// sameScheme keeps to the scheme of the address, so that credentials never leave without TLS
// when that is asked for, whatever a private address is usually spoken to with.
type sameScheme struct {
	address Address
	base    *http.Transport
}

func newTransport(address Address, caFile string) (*sameScheme, error) {
	base := http.DefaultTransport.(*http.Transport).Clone()
	base.DialContext = (&net.Dialer{Timeout: dialTime}).DialContext
	base.TLSHandshakeTimeout, base.ResponseHeaderTimeout = dialTime, answerTime
	if caFile != "" {
		bundle, err := os.ReadFile(caFile)
		if err != nil {
			return nil, fmt.Errorf("BERTH_REGISTRY_CA_FILE: %w", err)
		}
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(bundle) {
			return nil, fmt.Errorf("BERTH_REGISTRY_CA_FILE: %s does not contain a PEM certificate", caFile)
		}
		base.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	}
	return &sameScheme{address, base}, nil
}

// RoundTrip implements http.RoundTripper.
func (t *sameScheme) RoundTrip(r *http.Request) (*http.Response, error) {
	switch {
	case r.URL.Host == t.address.Host && r.URL.Scheme != t.address.Scheme:
		r = r.Clone(r.Context())
		r.URL.Scheme = t.address.Scheme
	case t.address.Scheme == "https" && r.URL.Scheme != "https":
		return nil, fmt.Errorf("the registry leads to %s, without TLS", r.URL.Host)
	}
	answer, err := t.base.RoundTrip(r)
	if errors.As(err, new(x509.UnknownAuthorityError)) {
		err = fmt.Errorf("%w; if that is an authority of your own, name its certificate in BERTH_REGISTRY_CA_FILE", err)
	}
	return answer, err
}
