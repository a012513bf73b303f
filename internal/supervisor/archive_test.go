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
