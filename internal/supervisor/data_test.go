package supervisor

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/admission"
	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/engine/enginetest"
	"github.com/berth-host/berth/internal/hostfault"
	"github.com/berth-host/berth/internal/stack"
)

// dataOf returns a tar of data with one file, kept.
func dataOf(t *testing.T, content string) io.Reader {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	require.NoError(t, w.WriteHeader(&tar.Header{Name: "kept", Mode: 0o644, Size: int64(len(content))}))
	_, err := io.WriteString(w, content)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return &b
}

// volume returns the data of web in the volume with a number.
func (w *world) volume(st *stack.Stack, number int) map[string]string {
	return w.engine.Volume(engine.Key{Stack: st.ID, Service: "web", Volume: number}.Data())
}

func (w *world) replaceData(st *stack.Stack, content string) error {
	w.t.Helper()
	_, err := w.sup.ReplaceData(w.t.Context(), st.ID, "web", dataOf(w.t, content))
	return err
}

func ofData(c *Config) { c.MaxData = 1 << 20 }

func TestData_IsReplacedByAnotherVolume(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.long(service("web"))
		for number := 1; number < 4; number++ {
			require.NoError(t, w.replaceData(st, "new"))
			require.Equal(t, map[string]string{"kept": "new"}, w.volume(st, number))
			require.Empty(t, w.volume(st, number-1))
			require.True(t, w.answers(st, "web"))
		}
		w.runs(st, "web-g1-r3")
		require.Equal(t, engine.Key{Stack: st.ID, Service: "web", Generation: 1, Volume: 3}, w.sup.Serving()[0].Key)
		st = w.get(st.ID)
		require.Equal(t, map[string]int{"web": 3}, st.DataVolumes)
		require.Equal(t, stack.Running, st.Generation.Services[0].Status)
		require.Zero(t, count(w.events(st.ID), "service.crashed"))
		w.stopServer()
		w.startServer()
		w.crash(st, "web-g1-r3", 1)
		w.awaitEvent(st.ID, "service.restarted", 4)
		w.deploy(st.ID, service("web"))
		w.serves(st.ID, 2)
		require.Equal(t, map[string]string{"kept": "new"}, w.volume(st, 3))
	}, ofData)
}

func TestData_ThatNothingStartsWithIsNotTaken(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.long(service("web"))
		require.NoError(t, w.replaceData(st, "good"))
		w.program(st.ID, 1, func(p *enginetest.Process) int {
			if p.Read(stack.DataDir, "kept") == "bad" {
				return 3
			}
			return listen(p)
		})
		err := w.replaceData(st, "bad")
		require.Equal(t, stack.Unprocessable, stack.KindOf(err), "%v", err)
		require.Contains(t, err.Error(), "what was there before serves again")
		require.True(t, w.answers(st, "web"))
		require.Equal(t, map[string]string{"kept": "good"}, w.volume(st, 1))
		require.Empty(t, w.volume(st, 2))
		require.Equal(t, stack.Running, w.get(st.ID).Generation.Services[0].Status)
		require.Zero(t, count(w.events(st.ID), "service.crashed"))
		require.NoError(t, w.replaceData(st, "better"))
		require.Equal(t, map[string]string{"kept": "better"}, w.volume(st, 2))
	}, ofData)
}

func TestData_IsLeftWhereTheCallerLeaves(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.long(service("web"))
		w.program(st.ID, 1, listen)
		require.NoError(t, w.replaceData(st, "first"))
		ctx, cancel := context.WithCancelCause(w.t.Context())
		gone := errors.New("the caller left")
		body, feed := io.Pipe()
		done := make(chan error, 1)
		go func() {
			_, err := w.sup.ReplaceData(ctx, st.ID, "web", body)
			done <- err
		}()
		_, err := io.CopyN(feed, dataOf(t, "second"), 512)
		require.NoError(t, err)
		deployed := make(chan struct{})
		go func() {
			defer close(deployed)
			w.deploy(st.ID, service("web"))
		}()
		time.Sleep(time.Second)
		require.Equal(t, stack.Conflict, stack.KindOf(w.replaceData(st, "third")))
		require.Equal(t, 1, w.get(st.ID).Generation.Number, "a deploy waits")
		cancel(gone)
		feed.CloseWithError(gone)
		require.ErrorIs(t, <-done, gone)
		<-deployed
		w.serves(st.ID, 2)
		require.Equal(t, map[string]string{"kept": "first"}, w.volume(st, 1))
		require.Empty(t, w.volume(st, 2))
	}, ofData)
}

func TestData_IsReadWhileItsProcessIsStopped(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.long(service("web"))
		require.NoError(t, w.replaceData(st, "kept"))
		for _, stop := range []bool{false, true} {
			var out bytes.Buffer
			require.NoError(t, w.sup.ReadData(w.t.Context(), st.ID, "web", stop, &out))
			require.Equal(t, []byte{0x1f, 0x8b}, out.Bytes()[:2])
			require.True(t, w.answers(st, "web"))
		}
		full := errors.New("the caller left")
		require.ErrorIs(t, w.sup.ReadData(w.t.Context(), st.ID, "web", true, writer(func([]byte) (int, error) { return 0, full })), full)
		require.True(t, w.answers(st, "web"))
		require.Zero(t, count(w.events(st.ID), "service.crashed"))
		require.Equal(t, stack.Running, w.get(st.ID).Generation.Services[0].Status)
	}, ofData)
}

// The owner of a stack in a crash loop gets at its files, and puts others in their place.
func TestData_OfAFailedStackIsReadAndReplaced(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.long(service("web"))
		require.NoError(t, w.replaceData(st, "kept"))
		w.program(st.ID, 1, exits(1))
		w.crash(st, "web-g1-r1", 1)
		w.becomes(st.ID, stack.Failed)
		var out bytes.Buffer
		require.NoError(t, w.sup.ReadData(w.t.Context(), st.ID, "web", true, &out))
		require.Equal(t, []byte{0x1f, 0x8b}, out.Bytes()[:2])

		// It gets other data, and begins with that once it is deployed again.
		kept := w.keepFile(st, ServiceData{Service: "web", Content: strings.NewReader("of a backup")})
		require.NoError(t, w.replaceData(st, "other"))
		require.NoFileExists(t, kept)
		require.Equal(t, stack.Failed, w.get(st.ID).Status)
		w.program(st.ID, 2, nil)
		w.deploy(st.ID, service("web"))
		w.serves(st.ID, 2)
		require.Equal(t, map[string]string{"kept": "other"}, w.volume(st, 2))

		never := w.becomes(w.createRunning(time.Hour, exits(1), service("web")).ID, stack.Failed)
		require.NoError(t, w.sup.cfg.Engine.Discard(w.t.Context(), engine.Objects{Volumes: []engine.Volume{{Name: dataKey(never, "web").Data()}}}))
		err := w.sup.ReadData(w.t.Context(), never.ID, "web", false, &out) // as after a build that fails
		require.Equal(t, stack.Conflict, stack.KindOf(err))
		require.ErrorContains(t, err, "web has no data: it has never run")
	}, ofData)
}

// The data of a failed stack may be in a snapshot. If it cannot be replaced, it is as it was.
func TestData_InTheSnapshotOfAFailedStackIsReplacedOrKept(t *testing.T) {
	t.Parallel()
	broken := errors.New("the engine is broken")
	for name, disturb := range map[string]func(w *world){
		"nothing fails": nil,
		"the database fails": func(w *world) {
			w.engine.After("UnpackData", func(string) error {
				w.db.breaks(func(string, []stack.Event) error { return stack.NewError(stack.Conflict, "not now") })
				return nil
			})
		},
		"the snapshot stays": func(w *world) { w.engine.Before("Discard", func(string) error { return broken }) },
		"the server dies before the snapshot is removed": func(w *world) {
			w.engine.Before("Discard", func(string) error {
				w.engine.Leave()
				return engine.ErrUnreachable
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) {
				needs := service("web")
				needs.DependsOn = []string{"api"}
				st := w.live(needs, service("api"))
				require.NoError(t, w.replaceData(st, "kept"))
				w.program(st.ID, 1, exits(1))
				w.awaitEvent(st.ID, "stack.expired", 1)
				time.Sleep(time.Second)
				require.NoError(t, w.claim(st.ID))
				w.becomes(st.ID, stack.Failed) // since api fails, the data of web is still in the snapshot
				w.settle()
				require.Empty(t, w.volume(st, 1))

				want := "other"
				if disturb == nil {
					require.NoError(t, w.replaceData(st, "other"))
				} else {
					want = "kept"
					disturb(w)
					require.Error(t, w.replaceData(st, "other"))
				}
				w.stopServer()
				w.db.breaks(nil)
				w.engine.Before("Discard", nil)
				w.engine.Return()
				w.startServer()
				w.settle()
				w.deploy(st.ID, needs, service("api"))
				w.serves(st.ID, 2)
				require.Equal(t, map[string]string{"kept": want}, w.volume(st, w.get(st.ID).DataVolumes["web"]))
			}, ofData)
		})
	}
}

type writer func([]byte) (int, error)

func (f writer) Write(p []byte) (int, error) { return f(p) }

// The data that was pushed goes through an expiry like any other.
func TestData_OfAnotherVolumeIsKeptAndRestored(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(service("web"))
		require.NoError(t, w.replaceData(st, "kept"))
		w.awaitEvent(st.ID, "stack.expired", 1)
		time.Sleep(time.Second)
		require.Empty(t, w.volume(st, 1), "it is in the snapshot")
		require.NoError(t, w.claim(st.ID))
		st = w.becomes(st.ID, stack.Live)
		require.Equal(t, map[string]string{"kept": "kept"}, w.volume(st, 1))
		require.True(t, w.answers(st, "web"))
	}, ofData)
}

func TestData_NeedsRoom(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.long(service("web"))
		require.NoError(t, w.replaceData(st, "first"))
		w.engine.Before("UnpackData", func(string) error { return engine.ErrNoSpace })
		require.ErrorIs(t, w.replaceData(st, "second"), hostfault.NoSpace)
		w.engine.Before("UnpackData", nil)
		w.engine.Fill(0)
		require.Equal(t, stack.Unavailable, stack.KindOf(w.replaceData(st, "third")))
		require.Equal(t, map[string]string{"kept": "first"}, w.volume(st, 1))
		require.True(t, w.answers(st, "web"))
	}, func(c *Config) {
		ofData(c)
		floored(c)
	})
}

// floored gives the disk of the engine a floor.
func floored(c *Config) {
	c.Admission = admission.New(admission.Config{
		Stacks: func(context.Context) ([]*stack.Stack, error) { return nil, nil }, Firewall: walls{&world{}},
		Disks: []admission.Disk{{Free: c.Engine.Room}}, DiskFloor: 1, Log: c.Log,
	})
}

func TestFaultOfDump_IsOneLine(t *testing.T) {
	for _, c := range []struct{ runtime, said, want string }{
		{"postgres", "; the end of its output:\npg_restore: error: could not execute query: ERROR:  no such type\nCommand was: CREATE TABLE a (\n)", ": could not execute query: ERROR:  no such type"},
		{"valkey", "; the end of its output:\n[offset 0] Checking RDB file\n--- RDB ERROR DETECTED ---\n[offset 9] Unexpected EOF reading RDB file\n[info] 0 keys read", ": [offset 9] Unexpected EOF reading RDB file"},
		{"valkey", "; the end of its output:\nfirst\nlast", ": last"},
		{"postgres", "; it wrote nothing", "; it wrote nothing"},
	} {
		spec := stack.Spec{Runtime: stack.Runtime{Name: c.runtime}}
		require.Equal(t, c.want, faultOfDump(spec.Database().LoadFault, c.said))
	}
}
