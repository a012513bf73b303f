package edge

import (
	"encoding/hex"
	"math/rand/v2"
	"net/http"
	"strings"

	"github.com/berth-host/berth/internal/proxy"
)

// requestID returns the caller's own id for the request if it is usable, else a new
// one. It serves to find lines in logs and is not secret.
func requestID(r *http.Request) string {
	if ids := r.Header[proxy.HeaderRequestID]; len(ids) == 1 && saneID(ids[0]) {
		return ids[0]
	}
	var b [16]byte
	for i := 0; i < len(b); i += 8 {
		n := rand.Uint64()
		for j := range 8 {
			b[i+j] = byte(n >> (8 * j))
		}
	}
	return hex.EncodeToString(b[:])
}

func saneID(id string) bool {
	if len(id) < 1 || len(id) > 128 {
		return false
	}
	for i := range len(id) {
		c := id[i]
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-_.:", c) >= 0) {
			return false
		}
	}
	return true
}
