package operator

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
)

// Backup says what a backup has beside the state, the files and the data.
type Backup struct {
	Images  bool `json:"images"`
	Secrets bool `json:"secrets"` // the installation's key, and those of certificates
}

func (b Backup) line() string {
	line := "backup"
	if b.Images {
		line += " --images"
	}
	if b.Secrets {
		line += " --with-key"
	}
	return line
}

// backupError is the trailer that says why a backup was cut off.
const backupError = "Berth-Backup-Error"

// backUp answers with a backup. It ends with whoever reads it.
func (s *Server) backUp(w http.ResponseWriter, r *http.Request) {
	var b Backup
	out := &begunWriter{to: w}
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxCommand)).Decode(&b)
	if err == nil {
		err = s.audited(context.WithoutCancel(r.Context()), b.line(), func() error { return s.cfg.BackUp(r.Context(), b, out) })
	}
	switch {
	case err == nil:
	case out.begun:
		w.Header().Set(http.TrailerPrefix+backupError, strings.ReplaceAll(err.Error(), "\n", "; "))
	default:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusUnprocessableEntity)
		_ = json.NewEncoder(w).Encode(refusal{err.Error()})
	}
}

// begunWriter knows whether something was written.
type begunWriter struct {
	to    io.Writer
	begun bool
}

func (w *begunWriter) Write(p []byte) (int, error) {
	w.begun = true
	return w.to.Write(p)
}
