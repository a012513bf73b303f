package operator

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"
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

// Why a backup was cut off.
var (
	errStopping   = errors.New("the server is stopping, and the backup is not complete; run the command again once the server has started")
	errReaderLeft = errors.New("cancelled by the reader")
)

// lastWords is how long a reader may take to read on when its backup is cut off, so that it is
// told why.
const lastWords = 2 * time.Second

// StopBackups cuts off the backup that is under way, and refuses others.
func (s *Server) StopBackups() { s.stopBackups() }

// backUp answers with a backup. It ends with whoever reads it, and with StopBackups.
func (s *Server) backUp(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(s.stopping, func() {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(lastWords)) // the connection may be closed
		cancel()
	})()
	var b Backup
	out := &backupWriter{ctx: ctx, to: w}
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxCommand)).Decode(&b)
	if err == nil {
		err = s.audited(context.WithoutCancel(ctx), b.line(), func() error {
			if s.stopping.Err() != nil {
				return errStopping
			}
			err := s.cfg.BackUp(ctx, b, out)
			switch {
			case err == nil:
			case s.stopping.Err() != nil:
				return errStopping
			case r.Context().Err() != nil:
				return errReaderLeft
			}
			return err
		})
	}
	switch {
	case err == nil:
	case out.begun:
		w.Header().Set(http.TrailerPrefix+backupError, oneLine(err))
	default:
		refuse(w, err)
	}
}

// backupWriter writes until ctx ends, and knows whether something was written.
type backupWriter struct {
	ctx   context.Context
	to    io.Writer
	begun bool
}

func (w *backupWriter) Write(p []byte) (int, error) {
	if err := w.ctx.Err(); err != nil {
		return 0, err
	}
	w.begun = true
	return w.to.Write(p)
}
