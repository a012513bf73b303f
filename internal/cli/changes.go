package cli

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"

	"github.com/berth-host/berth/internal/client"
	"github.com/berth-host/berth/internal/pack"
)

// seen is the source of a stack as this program has seen it served: the hashes of a tree
// and its digest. Losing it costs a request.
type seen struct {
	Generation int                  `json:"generation"`
	Digest     string               `json:"digest"`
	Files      map[string]pack.File `json:"files"`
}

// seenFile returns the file of what was seen of a stack's source.
func (m *memory) seenFile(server, id string) string {
	sum := sha256.Sum256([]byte(server))
	return filepath.Join(filepath.Dir(m.path), "sources", id+"-"+hex.EncodeToString(sum[:4])+".json")
}

// loadSeen returns what was seen of a stack's source, nil for nothing.
func (m *memory) loadSeen(server, id string) *seen {
	text, err := os.ReadFile(m.seenFile(server, id))
	if err != nil {
		return nil
	}
	var s seen
	if json.Unmarshal(text, &s) != nil {
		return nil
	}
	return &s
}

// saveSeen remembers a stack's source.
func (m *memory) saveSeen(server, id string, s seen) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	name := m.seenFile(server, id)
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	_, err = writeWhole(name, bytes.NewReader(text))
	return err
}

// forgetSeen forgets a stack's source.
func (m *memory) forgetSeen(server, id string) { _ = os.Remove(m.seenFile(server, id)) } // it may not be there

// forget forgets a stack that no longer exists.
func (a *app) forget(server, id string) error {
	a.memory.forgetSeen(server, id)
	return a.memory.update(server, func(s *onServer) { s.forget(id) })
}

// served returns the source that a stack serves: what this program has seen, or the
// listing of the server. It is nil if neither is known.
func (a *app) served(ctx context.Context, t *target) *seen {
	if known := a.memory.loadSeen(t.api.Server(), t.stack.ID); known != nil && known.Generation == t.stack.Generation {
		return known
	}
	return listed(ctx, t)
}

// listed returns the source that a stack serves as the server lists it, or nil.
func listed(ctx context.Context, t *target) *seen {
	list, err := t.api.Source(ctx, t.stack.ID)
	if err != nil {
		return nil // the server keeps no sources, or not this one
	}
	s := &seen{Generation: list.Generation, Digest: list.Digest, Files: map[string]pack.File{}}
	for _, f := range list.Files {
		s.Files[f.Path] = pack.File{Mode: f.Mode, SHA256: f.SHA256, Link: f.Target != ""}
	}
	return s
}

// remember keeps the hashes of an upload under its digest once that is served. What cannot
// be kept is asked of the server the next time.
func (a *app) remember(ctx context.Context, t *target, digest string, s *spool) {
	if s.files == nil || digest == "" || t.stack.Status != client.Live {
		return
	}
	served, err := t.api.SourceDigest(ctx, t.stack.ID)
	if err != nil || served != digest {
		return
	}
	_ = a.memory.saveSeen(t.api.Server(), t.stack.ID, seen{
		Generation: t.stack.Generation, Digest: digest, Files: s.files,
	})
}
