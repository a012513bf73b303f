package supervisor

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/stack"
)

// A node that stood still while it kept something apart removes nothing of the next owner.
func TestKeepApart_AFormerOwnerRemovesNothing(t *testing.T) {
	t.Parallel()
	inCluster(t, func(a, b *world, l *links) {
		st := a.long(pages("web"))
		a.settle()
		frozen := make(chan struct{})
		l.archive.meets(func(ctx context.Context, what string, st *stack.Stack) {
			if what == "keep" && st.Epoch == 1 {
				<-frozen
			}
		})
		a.deploy(st.ID, pages("web"))
		a.serves(st.ID, 2)
		a.settle()
		require.Equal(t, []string{"files-g1", "files-g2"}, l.archive.names(st.ID))
		require.NoError(t, b.sup.TakeOver(b.t.Context(), Lost{Node: "a"}))
		b.settle()
		b.deploy(st.ID, pages("web"))
		b.serves(st.ID, 3)
		b.settle()
		require.Equal(t, []string{"files-g3"}, l.archive.names(st.ID))
		close(frozen)
		a.settle()
		b.settle()
		require.Equal(t, []string{"files-g3"}, l.archive.names(st.ID))
		a.nowhere(st)
		require.Equal(t, 200, b.ask(st, "web"))
	})
}

// A node that is cut off does not go on with what another may do by then.
func TestKeepApart_EndsOnANodeThatIsCutOff(t *testing.T) {
	t.Parallel()
	inCluster(t, func(a, _ *world, l *links) {
		begun, ended := 0, 0
		l.archive.meets(func(ctx context.Context, what string, _ *stack.Stack) {
			if what == "put" {
				begun++
				<-ctx.Done()
				ended++
			}
		})
		st := a.long(pages("web"))
		a.settle()
		require.Equal(t, []int{1, 0}, []int{begun, ended})
		a.sup.Isolated(a.t.Context(), nil, time.Second)
		synctest.Wait()
		require.Equal(t, []int{1, 1}, []int{begun, ended})
		a.settle()
		require.Equal(t, 1, begun)
		l.archive.meets(nil)
		a.sup.Rejoined()
		a.settle()
		a.settle()
		require.Equal(t, []string{"files-g1"}, l.archive.names(st.ID))
		require.Equal(t, 200, a.ask(st, "web"))
	})
}

// The registry forgets a deleted stack once more when a push ends that was under way on a node
// that stood still.
func TestKeepApart_OfAStackThatIsDeletedMeanwhileIsForgotten(t *testing.T) {
	t.Parallel()
	inCluster(t, func(a, b *world, l *links) {
		pushed, thaws := make(chan struct{}), make(chan struct{})
		a.engine.After("Push", func(string) error {
			close(pushed)
			<-thaws
			return nil
		})
		st := a.long(service("web"))
		<-pushed
		b.sup.cfg.Lost = func(node string) bool { return node == "a" }
		require.NoError(t, b.sup.Delete(b.t.Context(), st.ID))
		b.settle()
		before := len(l.archive.forgotten)
		close(thaws)
		a.settle()
		require.Contains(t, l.archive.forgotten[before:], st.ID)
		require.Equal(t, "-", a.consistent(st, "in the end"))
	})
}

// What a deleted stack has on its node goes after the end of a push: a server that finds it makes
// the registry forget the stack once more.
func TestKeepApart_EndsBeforeADeletedStackGoes(t *testing.T) {
	t.Parallel()
	inCluster(t, func(a, _ *world, l *links) {
		pushed, ends := make(chan struct{}), make(chan struct{})
		a.engine.After("Push", func(string) error {
			close(pushed)
			<-ends
			return nil
		})
		st := a.long(service("web"))
		<-pushed
		gone := make(chan error, 1)
		go func() { gone <- a.sup.Delete(a.t.Context(), st.ID) }()
		time.Sleep(time.Second)
		require.Empty(t, gone)
		require.True(t, a.dir.Has(st.ID))
		require.Empty(t, l.archive.forgotten)
		close(ends)
		require.NoError(t, <-gone)
		require.Equal(t, []string{st.ID}, l.archive.forgotten)
		require.Equal(t, "-", a.consistent(st, "in the end"))
	})
}

func TestOrphans_OfADeletedStackMakeTheRegistryForgetItOnceMore(t *testing.T) {
	t.Parallel()
	inCluster(t, func(a, b *world, l *links) {
		st := a.long(service("web"))
		a.settle()
		a.stopServer()
		b.sup.cfg.Lost = func(node string) bool { return node == "a" }
		require.NoError(t, b.sup.Delete(b.t.Context(), st.ID))
		require.Empty(t, l.archive.forgotten)
		a.startServer()
		require.Equal(t, "-", a.consistent(st, "once its node is back"))
		require.Equal(t, []string{st.ID}, l.archive.forgotten)
	})
}
