package docker

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/engine"
)

// shell returns a container with a shell, in which there may be so many processes.
func (b *bench) shell(t *testing.T, pids int64) (id string) {
	t.Helper()
	there, err := b.driver.HasImage(t.Context(), tools)
	require.NoError(t, err)
	if !there {
		require.NoError(t, b.driver.Pull(t.Context(), tools, io.Discard))
	}
	return b.run(t, engine.Spec{Name: b.name(), Image: tools, Cmd: []string{"sleep", "infinity"}, User: "200001:200001", Key: key, Pids: pids})
}

// script returns a command that a shell runs, with arguments.
func script(text string, args ...string) engine.Cmd {
	return engine.Cmd{Args: append([]string{"sh", "-c", text, "sh"}, args...)}
}

func TestCommand_PutsBothOutputsInTheOrderOfWriting(t *testing.T) {
	b := testBench(t)
	id := b.shell(t, 100)
	var out, want strings.Builder
	code, err := b.driver.Command(t.Context(), id, script(`i=0; while [ $i -lt 2000 ]; do echo $i; echo e$i >&2; i=$((i+1)); done; exit 4`), &out)
	require.NoError(t, err)
	assert.Equal(t, 4, code)
	for i := range 2000 {
		fmt.Fprintf(&want, "%d\ne%d\n", i, i)
	}
	assert.Equal(t, want.String(), out.String())
}

func TestCommand_LeadsAGroupAndHasNoOtherOutput(t *testing.T) {
	b := testBench(t)
	id := b.shell(t, 100)
	var out strings.Builder
	_, err := b.driver.Command(t.Context(), id, script(`read -r pid name state parent group session rest </proc/$$/stat
[ $pid = $group ] && [ $pid = $session ] && echo leads; ls /proc/$$/fd; [ /proc/$$/fd/1 -ef /proc/$$/fd/2 ] && echo one; echo "$@"`, "it's $HOME", "`id`"), &out)
	require.NoError(t, err)
	assert.Equal(t, "leads\n0\n1\n2\none\nit's $HOME `id`\n", out.String())
}

func TestCommand_EndsAGroupThatHasTakenAllProcesses(t *testing.T) {
	b := testBench(t)
	id := b.shell(t, 20)
	ctx, cancel := context.WithCancel(t.Context())
	out := writerFunc(func(p []byte) (int, error) {
		if string(p) == "full\n" {
			cancel()
		}
		return len(p), nil
	})
	_, err := b.driver.Command(ctx, id, script(`exec perl -e '$| = 1; while (defined(my $p = fork())) { $p or sleep 300 } print "full\n"; sleep 300'`), out)
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, engine.ErrNotEnded)
	var left strings.Builder
	_, err = b.driver.Command(t.Context(), id, script(`grep -c perl /proc/[0-9]*/comm | grep -c ':1$'`), &left)
	require.NoError(t, err)
	assert.Equal(t, "0\n", left.String())
}

// What the engine says of a shell that it could not start is no output of the command.
func TestCommand_ThatCannotBeStartedIsNotOneThatFailed(t *testing.T) {
	b := testBench(t)
	id := b.shell(t, 100)
	code, err := b.driver.Command(t.Context(), id, script("exit 126"), io.Discard)
	require.NoError(t, err)
	require.Equal(t, 126, code)
	without := b.run(t, engine.Spec{
		Name: b.name(), Image: tools, User: "0:0", Key: key, Pids: 100,
		Cmd: []string{"sh", "-c", `chmod a-x "$(command -v sh)" && exec sleep infinity`},
	})
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		_, err := b.driver.Command(context.Background(), without, script("echo here"), io.Discard)
		assert.ErrorIs(t, err, engine.ErrNotBegun)
	}, 10*time.Second, 50*time.Millisecond)
}

func TestLeader_TakesNoIDThatStandsForOtherProcesses(t *testing.T) {
	for text, want := range map[string]int{"17\n": 17, "17\n18\n": 17, "0\n": 0, "1\n": 0, "-5\n": 0, "x\n": 0, strings.Repeat("9", 30): 0} {
		l := &leader{known: make(chan struct{})}
		for _, c := range text {
			fmt.Fprintf(l, "%c", c)
		}
		<-l.known
		assert.Equal(t, want, l.pid, text)
	}
}
