package certs

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/certmagic"

	"github.com/berth-host/berth/internal/pause"
)

// Shared keeps what all nodes of a cluster have in common: account, certificates, keys and
// the challenges under way, so that any node answers the authority. Package store implements
// it.
type Shared interface {
	Certificate(ctx context.Context, key string) (value []byte, modified time.Time, ok bool, err error)
	// CertificateKeys returns the keys below a folder.
	CertificateKeys(ctx context.Context, folder string) ([]string, error)
	PutCertificate(ctx context.Context, key string, value []byte) error
	// DeleteCertificates removes a key and all below it.
	DeleteCertificates(ctx context.Context, key string) error
	// LockCertificate gives a holder a lock or renews it, and reports whether it has it.
	LockCertificate(ctx context.Context, name, holder string, lease time.Duration) (bool, error)
	UnlockCertificate(ctx context.Context, name, holder string) error
}

const (
	// lockLease is how long a node that died keeps a lock.
	lockLease = 30 * time.Second
	// lockRetry is how often a lock that another has is asked for.
	lockRetry = time.Second
)

// shelf is Shared as certmagic stores in it.
type shelf struct {
	lease, retry time.Duration
	shared       atomic.Pointer[Shared] // nil until it is there

	mu   sync.Mutex
	held map[string]hold // by name
}

// hold is a lock that is renewed until release is called.
type hold struct {
	shared  Shared
	holder  string
	release func()
}

var (
	_ certmagic.Storage   = (*shelf)(nil)
	_ certmagic.TryLocker = (*shelf)(nil)
)

func newShelf() *shelf {
	return &shelf{lease: lockLease, retry: lockRetry, held: map[string]hold{}}
}

// errNotShared is why nothing is found before Share.
var errNotShared = errors.New("the certificates of the cluster are not there yet; try again in a moment")

// to returns where everything is.
func (s *shelf) to() (Shared, error) {
	if shared := s.shared.Load(); shared != nil {
		return *shared, nil
	}
	return nil, errNotShared
}

// Store implements certmagic.Storage, as do the others.
func (s *shelf) Store(ctx context.Context, key string, value []byte) error {
	shared, err := s.to()
	if err != nil {
		return err
	}
	return shared.PutCertificate(ctx, key, value)
}

func (s *shelf) Load(ctx context.Context, key string) ([]byte, error) {
	value, _, err := s.read(ctx, key)
	return value, err
}

// read returns the value of a key, and when it was written.
func (s *shelf) read(ctx context.Context, key string) (value []byte, modified time.Time, err error) {
	shared, err := s.to()
	if err != nil {
		return nil, time.Time{}, err
	}
	value, modified, ok, err := shared.Certificate(ctx, key)
	if err == nil && !ok {
		err = notThere(key)
	}
	return value, modified, err
}

func notThere(key string) error { return fmt.Errorf("%s: %w", key, fs.ErrNotExist) }

func (s *shelf) Delete(ctx context.Context, key string) error {
	shared, err := s.to()
	if err != nil {
		return err
	}
	return shared.DeleteCertificates(ctx, key)
}

func (s *shelf) Exists(ctx context.Context, key string) bool {
	_, err := s.Stat(ctx, key)
	return err == nil
}

func (s *shelf) Stat(ctx context.Context, key string) (certmagic.KeyInfo, error) {
	value, modified, err := s.read(ctx, key)
	if errors.Is(err, fs.ErrNotExist) {
		_, err = s.List(ctx, key, true)
		return certmagic.KeyInfo{Key: key}, err // a folder, if it is anything
	}
	return certmagic.KeyInfo{Key: key, Modified: modified, Size: int64(len(value)), IsTerminal: true}, err
}

// List returns the keys in a folder; unless recursive, those below the folders in it are left
// out, and the folders are there.
func (s *shelf) List(ctx context.Context, folder string, recursive bool) ([]string, error) {
	shared, err := s.to()
	if err != nil {
		return nil, err
	}
	all, err := shared.CertificateKeys(ctx, folder)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, notThere(folder)
	}
	if recursive {
		return all, nil
	}
	var keys []string
	there := map[string]bool{}
	for _, key := range all {
		name, _, _ := strings.Cut(strings.TrimPrefix(key, folder+"/"), "/")
		if entry := folder + "/" + name; !there[entry] {
			there[entry] = true
			keys = append(keys, entry)
		}
	}
	return keys, nil
}

// Lock waits for a lock of all nodes.
func (s *shelf) Lock(ctx context.Context, name string) error {
	for {
		locked, err := s.TryLock(ctx, name)
		if err != nil || locked {
			return err
		}
		if !pause.For(ctx, s.retry) {
			return ctx.Err()
		}
	}
}

// TryLock takes a lock unless another has it, and renews it until Unlock.
func (s *shelf) TryLock(ctx context.Context, name string) (bool, error) {
	shared, err := s.to()
	if err != nil {
		return false, err
	}
	holder := rand.Text() // unique, so that it also excludes others of this node
	locked, err := shared.LockCertificate(ctx, name, holder, s.lease)
	if err != nil || !locked {
		return false, err
	}
	renewing, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.renew(renewing, shared, name, holder)
	}()
	s.mu.Lock()
	defer s.mu.Unlock()
	if before, late := s.held[name]; late {
		before.release() // its lease ended before its work
	}
	s.held[name] = hold{shared, holder, func() { cancel(); <-done }}
	return true, nil
}

// renew keeps a lock until ctx ends, or another has it.
func (s *shelf) renew(ctx context.Context, shared Shared, name, holder string) {
	for pause.For(ctx, s.lease/3) {
		if locked, err := shared.LockCertificate(ctx, name, holder, s.lease); err == nil && !locked {
			return
		}
	}
}

// Unlock gives a lock back.
func (s *shelf) Unlock(ctx context.Context, name string) error {
	s.mu.Lock()
	held, ok := s.held[name]
	delete(s.held, name)
	s.mu.Unlock()
	if !ok {
		return nil
	}
	held.release()
	return held.shared.UnlockCertificate(ctx, name, held.holder)
}
