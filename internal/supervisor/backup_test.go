package supervisor

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/engine/enginetest"
	"github.com/berth-host/berth/internal/stack"
)

// copied is what a backup has got of a stack's data, by service.
type copied map[string]ServiceData

// backUp backs the data of a stack up.
func (w *world) backUp(st *stack.Stack) (all copied, missing map[string]error) {
	w.t.Helper()
	all = copied{}
	missing, err := w.sup.BackUpData(w.t.Context(), st.ID, func(d ServiceData) error {
		content, err := io.ReadAll(d.Content)
		require.Len(w.t, content, int(d.Size))
		d.Content = bytes.NewReader(content)
		all[d.Service] = d
		return err
	})
	require.NoError(w.t, err)
	return all, missing
}

func TestBackUp_PausesForFiveSecondsAtMost(t *testing.T) {
	t.Parallel()
	for took, moves := range map[time.Duration]bool{time.Second: false, 10 * time.Second: true} {
		inWorld(t, func(w *world) {
			paused := w.countPauses()
			st, texts := w.writer()
			send(texts, "kept")
			w.engine.Before("ReadData", func(string) error { // slow, whatever becomes of its context
				time.Sleep(took)
				return nil
			})
			all, missing := w.backUp(st)
			require.Empty(t, missing)
			require.Equal(t, moves, all["web"].Moving)
			require.Positive(t, all["web"].Size)
			require.Equal(t, 1, paused.count())
			require.LessOrEqual(t, paused.longest, backupPause)
			require.Empty(t, w.engine.Paused())
			require.True(t, w.answers(st, "web"))
		}, long)
	}
}

// A busy machine may need another attempt to freeze a process.
func TestBackUp_PausesAgainWhatDoesNotFreeze(t *testing.T) {
	t.Parallel()
	for fails, moves := range map[int32]bool{freezeTries - 1: false, freezeTries: true} {
		inWorld(t, func(w *world) {
			st, texts := w.writer()
			send(texts, "kept")
			var tries atomic.Int32
			w.engine.Before("Pause", func(string) error {
				if tries.Add(1) <= fails {
					return engine.ErrNotFrozen
				}
				return nil
			})
			began := time.Now()
			all, missing := w.backUp(st)
			require.Empty(t, missing)
			require.Equal(t, moves, all["web"].Moving)
			require.EqualValues(t, freezeTries, tries.Load())
			require.Equal(t, (freezeTries-1)*freezeAgain, time.Since(began))
			require.Empty(t, w.engine.Paused())
		}, long)
	}
}

// Data of an earlier backup that no volume has again is in the next one, too, and what a job may
// write to meanwhile is marked.
func TestBackUp_HasWhatIsNotRestoredYet(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st, texts := w.writer()
		send(texts, "kept")
		all, _ := w.backUp(st)
		require.False(t, all["web"].Moving)
		dropped := all["web"]
		dropped.Service = "dropped"
		path := w.keepFile(st, dropped)
		w.program(st.ID, 2, silent) // it is not healthy for a minute
		w.deploy(st.ID, service("web"))
		time.Sleep(time.Second)
		again, missing := w.backUp(st)
		require.Empty(t, missing)
		require.Equal(t, dropped.Size, again["dropped"].Size)
		require.True(t, again["web"].Moving, "a deploy is under way")
		require.FileExists(t, path)
	}, long)
}

func TestBackUp_GoesOnWithoutWhatCannotBeRead(t *testing.T) {
	t.Parallel()
	for method, lacks := range map[string][]string{"ReadData": {"web"}, "HasImage": {"web"}, "Inventory": {"db", "web"}} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) {
				st := w.long(using("web"), db())
				broken := errors.New("the disk is broken")
				w.engine.Before(method, func(string) error { return broken })
				all, missing := w.backUp(st)
				require.Len(t, all, 2-len(lacks))
				require.Equal(t, lacks, slices.Sorted(maps.Keys(missing)))
				for _, why := range missing {
					require.ErrorIs(t, why, broken)
				}
				require.Empty(t, w.engine.Paused())

				w.engine.Before(method, nil)
				all, missing = w.backUp(st)
				require.Len(t, all, 2)
				require.True(t, all["db"].Dump)
				require.Empty(t, missing)
			}, long)
		})
	}
}

// What a backup has left that cannot be opened is missing, and nothing else is taken for it.
func TestBackUp_GoesOnWithoutAFileThatCannotBeOpened(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.long(service("web"), service("api"))
		path := w.dir.BackedUpPath(st.ID, "web", false)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, syscall.Mknod(path, syscall.S_IFSOCK|0o600, 0)) // which nothing opens
		all, missing := w.backUp(st)
		require.Equal(t, []string{"api"}, slices.Collect(maps.Keys(all)))
		require.Equal(t, []string{"web"}, slices.Collect(maps.Keys(missing)))
	}, long)
}

func TestBackUp_EndsWithItsContext(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.long(service("web"))
		ctx, cancel := context.WithCancelCause(w.t.Context())
		stopping := errors.New("the server is stopping")
		w.engine.Before("Inventory", func(string) error {
			cancel(stopping)
			return stopping
		})
		missing, err := w.sup.BackUpData(ctx, st.ID, func(ServiceData) error { return nil })
		require.ErrorIs(t, err, stopping)
		require.Empty(t, missing)
	}, long)
}

// While data is copied it is not replaced. Nothing waits for the reader, and the reader gets what
// was copied even if the stack goes.
func TestBackUp_KeepsOffAReplacementUntilDataIsCopied(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st, texts := w.writer()
		send(texts, "kept")
		late := w.keepFile(st, ServiceData{Service: "dropped", Content: strings.NewReader("late")})
		copying := false
		w.engine.Before("ReadData", func(string) error {
			copying = true
			_, err := w.sup.ReplaceData(w.t.Context(), st.ID, "web", bytes.NewReader(nil))
			require.Equal(t, stack.Conflict, stack.KindOf(err))
			require.ErrorContains(t, err, "being backed up")
			return nil
		})
		got := map[string]string{}
		missing, err := w.sup.BackUpData(w.t.Context(), st.ID, func(d ServiceData) error {
			content, err := io.ReadAll(d.Content)
			got[d.Service] = string(content)
			if len(got) == 1 {
				require.Equal(t, map[string]string{"dropped": "late"}, got)
				require.True(t, w.sup.lookup(st.ID).isIdleBeside())
				require.NoError(t, w.replaceData(st, "replaced"))
				require.NoError(t, w.sup.Delete(w.t.Context(), st.ID))
				require.NoFileExists(t, late)
			}
			return err
		})
		require.NoError(t, err)
		require.Empty(t, missing)
		require.True(t, copying)
		require.Contains(t, got["web"], "kept")
	}, func(c *Config) {
		long(c)
		ofData(c)
	})
}

// A deletion does not wait for a backup, which goes on with the next stack.
func TestBackUp_KeepsOffNoDeletion(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st, texts := w.writer()
		send(texts, "kept")
		w.engine.Before("ReadData", func(string) error {
			w.engine.Before("ReadData", nil)
			return w.sup.Delete(w.t.Context(), st.ID)
		})
		all, missing := w.backUp(st)
		require.Empty(t, all)
		require.Empty(t, missing)
		require.Nil(t, w.sup.lookup(st.ID))
	}, long)
}

func TestHoldFiles_KeepsWhatDeploysReplace(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(pages("site"))
		sources := func() []string { return w.dir.Sources(st.ID, "") }
		old := sources()
		require.Len(t, old, 1)
		first, second := w.sup.HoldFiles(), w.sup.HoldFiles()
		w.deploy(st.ID, pages("site"))
		w.serves(st.ID, 2)
		time.Sleep(time.Hour)
		require.Len(t, sources(), 2)
		require.False(t, w.sup.IsQuiet(), "a reload does not wait for the backup")
		first()
		first()
		require.Len(t, sources(), 2)
		second()
		require.True(t, w.sup.IsQuiet())
		require.Len(t, sources(), 1)
		require.NotEqual(t, old, sources())
		require.DirExists(t, w.dir.Source(st.ID, w.get(st.ID).Generation.Source.Folder))
	}, long)
}

// keepFile puts what a backup has got where a restored server finds it.
func (w *world) keepFile(st *stack.Stack, d ServiceData) string {
	w.t.Helper()
	path := w.dir.BackedUpPath(st.ID, d.Service, d.Dump)
	require.NoError(w.t, os.MkdirAll(filepath.Dir(path), 0o700))
	content, err := io.ReadAll(d.Content)
	require.NoError(w.t, err)
	require.NoError(w.t, os.WriteFile(path, content, 0o600))
	return path
}

// loseObjects removes all that the engine has of a stack.
func (w *world) loseObjects(st *stack.Stack) {
	w.t.Helper()
	there, err := w.driver.Inventory(w.t.Context(), st.ID)
	require.NoError(w.t, err)
	require.NoError(w.t, w.driver.Discard(w.t.Context(), there[st.ID]))
}

func TestStart_BringsAStackBackFromABackup(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st, texts := w.writer()
		send(texts, "kept")
		all, _ := w.backUp(st)
		before := w.get(st.ID).Generation.Services[0].Image
		w.stopServer()
		w.loseObjects(st)
		path := w.keepFile(st, all["web"])

		w.startServer()
		w.settle()
		require.True(t, w.answers(st, "web"))
		require.Equal(t, "kept", w.engine.Volume(engine.Key{Stack: st.ID, Service: "web"}.Data())["kept"])
		require.NoFileExists(t, path)
		require.Equal(t, before, w.get(st.ID).Generation.Services[0].Image)
		require.Equal(t, 1, count(w.events(st.ID), "stack.restored"))
	}, long)
}

// Data that cannot be filled in fails the stack and stays, and a deploy begins with it.
func TestStart_KeepsABackupThatItCannotRestore(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st, texts := w.writer()
		send(texts, "kept")
		all, _ := w.backUp(st)
		w.stopServer()
		w.loseObjects(st)
		path := w.keepFile(st, all["web"])
		whole, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, whole[:10], 0o600))

		w.startServer()
		w.becomes(st.ID, stack.Failed)
		require.FileExists(t, path)
		require.NoError(t, os.WriteFile(path, whole, 0o600))
		w.deploy(st.ID, service("web"))
		w.serves(st.ID, 2)
		require.Equal(t, "kept", w.engine.Volume(engine.Key{Stack: st.ID, Service: "web"}.Data())["kept"])
	}, long)
}

// expiredInFiles is an expired stack of a node that was restored from a backup: the data of web is
// in a file, and that of db in one with a dump.
func (w *world) expiredInFiles() *stack.Stack {
	w.t.Helper()
	st := w.createRunning(5*time.Second, keeping, using("web"), db())
	w.becomes(st.ID, stack.Live)
	all, _ := w.backUp(st)
	w.awaitEvent(st.ID, "stack.expired", 1)
	w.settle()
	w.stopServer()
	w.loseObjects(st)
	for _, d := range all {
		w.keepFile(st, d)
	}
	return st
}

// hasFiles requires that a stack that was claimed has the data of expiredInFiles.
func (w *world) hasFiles(st *stack.Stack) {
	w.t.Helper()
	w.program(st.ID, 1, keeping)
	require.NoError(w.t, w.claim(st.ID))
	w.serves(st.ID, 1)
	require.Equal(w.t, st.ID, w.engine.Volume(engine.Key{Stack: st.ID, Service: "web"}.Data())["kept"])
	require.Contains(w.t, w.engine.Volume(engine.Key{Stack: st.ID, Service: "db"}.Data())[enginetest.LoadedDump], "dump of")
	left, err := w.dir.AllBackedUp(st.ID)
	require.NoError(w.t, err)
	require.Empty(w.t, left)
}

func TestMove_BringsTheFilesOfABackup(t *testing.T) {
	t.Parallel()
	inCluster(t, func(a, b *world, _ *links) {
		st := a.expiredInFiles()
		a.engine.Before("UnpackData", func(string) error { return errors.New("not now") })
		a.engine.Before("FillData", func(string) error { return errors.New("not now") })
		a.startServer()
		a.settle()
		left, err := a.dir.AllBackedUp(st.ID)
		require.NoError(t, err)
		require.Len(t, left, 2)
		require.NoError(t, a.sup.Move(a.t.Context(), st.ID, "b"))
		b.settle()
		a.nowhere(st)
		b.hasFiles(st)
	})
}

func TestTakeOver_HasTheDataThatABackupBroughtBack(t *testing.T) {
	t.Parallel()
	inCluster(t, func(a, b *world, l *links) {
		st := a.expiredInFiles()
		clear(l.archive.kept)
		a.startServer()
		a.settle()
		left, err := a.dir.AllBackedUp(st.ID)
		require.NoError(t, err)
		require.Empty(t, left)
		a.stopServer()
		require.NoError(t, b.sup.TakeOver(b.t.Context(), Lost{Node: "a"}))
		b.settle()
		b.hasFiles(st)
	})
}

// The files of a stack may have been kept apart while data stood in a backup's file.
func TestTakeOver_HasNoOlderDataOfABackup(t *testing.T) {
	t.Parallel()
	inCluster(t, func(a, b *world, l *links) {
		st, texts := a.writer()
		send(texts, "kept")
		time.Sleep(period)
		synctest.Wait()
		require.False(t, a.get(st.ID).Snapshot.At.IsZero())
		all, _ := a.backUp(st)
		path := a.keepFile(st, all["web"])
		require.NoError(t, l.archive.Put(t.Context(), st, filesName(a.get(st.ID)), func(_ context.Context, to io.Writer) error {
			return a.dir.Pack(st.ID, false, to)
		}))
		require.NoError(t, os.Remove(path))
		send(texts, "newer")
		time.Sleep(period)
		synctest.Wait()
		a.stopServer()
		require.NoError(t, b.sup.TakeOver(b.t.Context(), Lost{Node: "a"}))
		b.settle()
		require.True(t, b.answers(st, "web"))
		require.Equal(t, "newer", b.engine.Volume(engine.Key{Stack: st.ID, Service: "web"}.Data())["kept"])
	}, restoring)
}
