package wire

import "strings"

// Request is the head of a request.
type Request struct {
	Method       string
	Target       string // in origin form, or *
	Host         string
	Major, Minor int     // version of HTTP
	Fields       []Field // without Host
	Length       int64   // of the body; -1 if it is not known, 0 for none
	Sized        bool    // there is a Content-Length
	Close        bool    // Scan only: the connection ends with the answer
	Trailers     []string
}

// Has reports whether a field has a token in its list.
func (r *Request) Has(key, token string) bool {
	for i := range r.Fields {
		if r.Fields[i].Key == key && HasToken([]string{r.Fields[i].Value}, token) {
			return true
		}
	}
	return false
}

// Values returns the values of a field.
func (r *Request) Values(key string) (values []string) {
	for i := range r.Fields {
		if r.Fields[i].Key == key {
			values = append(values, r.Fields[i].Value)
		}
	}
	return values
}

// IsSafe reports whether requests of the method change nothing (RFC 9110, 9.2.1).
func (r *Request) IsSafe() bool {
	switch r.Method {
	case "GET", "HEAD", "OPTIONS", "TRACE":
		return true
	}
	return false
}

// Upgrade returns the protocols that the request asks for and a service may switch to, ""
// for none. One with a body asks for none.
func (r *Request) Upgrade() string {
	if r.Major != 1 || r.Minor < 1 || r.Length != 0 || !r.Has("Connection", "upgrade") {
		return ""
	}
	return strings.Join(PassedUpgrades(r.Values("Upgrade")), ", ")
}

// Expects reports whether the body is sent once an interim answer 100 asks for it.
func (r *Request) Expects() bool {
	return r.Major == 1 && r.Minor >= 1 && r.Length != 0 && r.Has("Expect", "100-continue")
}
