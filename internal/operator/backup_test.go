package operator

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

type writer func([]byte) (int, error)

func (f writer) Write(p []byte) (int, error) { return f(p) }

// endless writes until it cannot.
func endless(_ context.Context, _ Backup, to io.Writer) error {
	for {
		if _, err := to.Write(make([]byte, 1<<10)); err != nil {
			return err
		}
	}
}

// result returns what the audit says came of the last command, once it has ended.
func (w *world) result() (result string) {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		last, err := w.store.AuditEntries(w.t.Context(), 1)
		require.NoError(w.t, err)
		result = last[0].Result
		return result != begun
	}, 10*time.Second, time.Millisecond)
	return result
}

func TestBackup_IsCutOffWhenTheServerStops(t *testing.T) {
	w := newWorld(t)
	w.backUp = endless
	var cutOff time.Time
	err := w.client.BackUp(t.Context(), Backup{}, func(r io.Reader) error {
		_, err := io.CopyN(io.Discard, r, 1<<20)
		require.NoError(t, err)
		cutOff = time.Now()
		w.server.StopBackups()
		_, err = io.Copy(io.Discard, r)
		require.NoError(t, err)
		return io.ErrUnexpectedEOF // of what it read
	})
	require.Equal(t, errStopping, err)
	require.Less(t, time.Since(cutOff), time.Minute)
	require.Equal(t, errStopping.Error(), w.result())

	err = w.client.BackUp(t.Context(), Backup{}, func(io.Reader) error { return nil })
	require.Equal(t, errStopping, err)
}

// A reader that does not read on does not keep the server from stopping.
func TestBackup_IsCutOffWhereNobodyReads(t *testing.T) {
	w := newWorld(t)
	var written atomic.Int64
	w.backUp = func(ctx context.Context, b Backup, to io.Writer) error {
		return endless(ctx, b, writer(func(p []byte) (int, error) {
			written.Add(1)
			return to.Write(p)
		}))
	}
	err := w.client.BackUp(t.Context(), Backup{}, func(r io.Reader) error {
		for before, same := int64(0), 0; same < 10; { // so it waits for its reader
			time.Sleep(50 * time.Millisecond)
			if now := written.Load(); now == before {
				same++
			} else {
				before, same = now, 0
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), lastWords+5*time.Second)
		defer cancel()
		require.NoError(t, w.server.Shutdown(ctx))
		_, err := io.Copy(io.Discard, r)
		return err
	})
	require.ErrorContains(t, err, "the server ended before the backup was complete")
	require.Equal(t, errStopping.Error(), w.result())
}

func TestBackup_IsCancelledByItsReader(t *testing.T) {
	w := newWorld(t)
	w.backUp = endless
	full := errors.New("the disk is full")
	require.Equal(t, full, w.client.BackUp(t.Context(), Backup{}, func(io.Reader) error { return full }))
	require.Equal(t, "cancelled by the reader", w.result())

	w.backUp = func(ctx context.Context, _ Backup, to io.Writer) error {
		_, err := to.Write(make([]byte, 1<<14)) // more than is kept back
		<-ctx.Done()
		return errors.Join(err, context.Cause(ctx))
	}
	ctx, cancel := context.WithCancel(t.Context())
	err := w.client.BackUp(ctx, Backup{}, func(r io.Reader) error {
		cancel()
		_, err := io.ReadAll(r)
		return err
	})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, "cancelled by the reader", w.result())
}
