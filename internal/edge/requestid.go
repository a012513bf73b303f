package edge

import (
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"net/http"
	"strings"

	"github.com/berth-host/berth/internal/wire"
)

// requestID returns the caller's own id for the request if it is usable, else a new
// one. It serves to find lines in logs and is not secret.
func requestID(r *http.Request) string {
	if ids := r.Header[wire.HeaderRequestID]; len(ids) == 1 && saneID(ids[0]) {
		return ids[0]
	}
	return newID()
}

func newID() string {
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:8], rand.Uint64())
	binary.LittleEndian.PutUint64(b[8:], rand.Uint64())
	return hex.EncodeToString(b[:])
}

func saneID(id string) bool {
	strange := func(r rune) bool { return r != ':' && notInName(r) }
	return id != "" && len(id) <= 128 && !strings.ContainsFunc(id, strange)
}
