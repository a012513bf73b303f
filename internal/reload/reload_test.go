package reload

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The test binary plays the new process where this says how.
const playing = "RELOAD_TEST_PLAYS"

func TestMain(m *testing.M) {
	switch os.Getenv(playing) {
	case "":
		os.Exit(m.Run())
	case "successor":
		if err := play(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	case "silent":
		time.Sleep(time.Hour)
	default:
		os.Exit(3)
	}
}

type step struct{ Says string }

// play is what a new process does: it reports, gets what the other leaves, writes that to the
// file that it inherits, and reports again.
func play() error {
	before, err := FromEnvironment()
	if err != nil || before == nil {
		return fmt.Errorf("no predecessor: %w", err)
	}
	if err := before.Report(step{"prepared"}); err != nil {
		return err
	}
	var left step
	if err := before.Await(&left); err != nil {
		return err
	}
	if _, err := io.WriteString(before.Files()["log"], left.Says+" "+strings.Join(os.Args[1:], " ")); err != nil {
		return err
	}
	if err := before.Report(step{"serving " + os.Getenv("WATCHDOG_PID")}); err != nil {
		return err
	}
	before.AwaitEnd()
	return nil
}

// self is the test binary.
func self(t *testing.T) Program {
	t.Helper()
	program, err := Current()
	require.NoError(t, err)
	return program
}

func TestSuccessor_ReportsAndIsGivenWhatIsLeft(t *testing.T) {
	t.Setenv(playing, "successor")
	t.Setenv("WATCHDOG_PID", "1") // of this process
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	require.NoError(t, err)
	defer log.Close()
	next, err := self(t).Start([]string{"serve"}, map[string]*os.File{"log": log})
	require.NoError(t, err)
	var reported step
	require.NoError(t, next.Await(t.Context(), &reported))
	require.Equal(t, "prepared", reported.Says)
	require.NoError(t, next.Give(step{"all"}))
	require.NoError(t, next.Await(t.Context(), &reported))
	require.Equal(t, "serving ", reported.Says)
	text, err := os.ReadFile(log.Name())
	require.NoError(t, err)
	require.Equal(t, "all serve", string(text))
	next.channel.close() // as the end of this process would
	<-next.Ended()
	require.NoError(t, next.how)
}

func TestSuccessor_ThatFails(t *testing.T) {
	t.Setenv(playing, "failure")
	next, err := self(t).Start(nil, nil)
	require.NoError(t, err)
	var reported step
	require.ErrorContains(t, next.Await(t.Context(), &reported), "exit status 3")
	next.Kill()
}

func TestSuccessor_ThatDoesNotAnswer(t *testing.T) {
	t.Setenv(playing, "silent")
	next, err := self(t).Start(nil, nil)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	var reported step
	require.ErrorContains(t, next.Await(ctx, &reported), "does not answer")
	next.Kill()
	<-next.Ended()
}

func TestSuccessor_ThatIsAskedToEnd(t *testing.T) {
	t.Setenv(playing, "silent")
	next, err := self(t).Start(nil, nil)
	require.NoError(t, err)
	next.Terminate()
	var reported step
	require.ErrorContains(t, next.Await(t.Context(), &reported), "signal: terminated")
	next.Terminate()
	next.Kill()
}

func TestFromEnvironment_WithoutAPredecessor(t *testing.T) {
	before, err := FromEnvironment()
	require.NoError(t, err)
	require.Nil(t, before)
	t.Setenv(variable, "log")
	_, err = FromEnvironment()
	require.ErrorContains(t, err, "not by another berthd")
}

// script writes a program.
func script(t *testing.T, mode os.FileMode, text string) Program {
	t.Helper()
	path := filepath.Join(t.TempDir(), "berthd")
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o700))
	require.NoError(t, os.Chmod(path, mode))
	return Program{path}
}

func TestCheck(t *testing.T) {
	good := script(t, 0o755, "echo $1 is fine")
	require.NoError(t, good.Check(t.Context(), "config"))
	require.ErrorContains(t, script(t, 0o755, "echo one; echo BERTH_LISTEN is wrong >&2; exit 1").Check(t.Context(), "config"), "exit status 1: BERTH_LISTEN is wrong")
	require.NoError(t, script(t, 0o755, "[ -n \"${"+variable+"+set}\" ]").Check(t.Context()), "it has the settings of the start")
	require.ErrorContains(t, script(t, 0o775, "").Check(t.Context()), "others can write")
	require.ErrorContains(t, script(t, 0o757, "").Check(t.Context()), "others can write")
	require.ErrorContains(t, Program{good.path + ".gone"}.Check(t.Context()), "no such file")
	require.ErrorContains(t, Program{filepath.Dir(good.path)}.Check(t.Context()), "is not a file")
	require.NoError(t, os.Chmod(filepath.Dir(good.path), 0o777))
	require.ErrorContains(t, good.Check(t.Context()), "everybody can write the folder")
	require.NoError(t, os.Chmod(filepath.Dir(good.path), 0o777|os.ModeSticky))
	require.NoError(t, good.Check(t.Context()))
	if os.Geteuid() == 0 {
		require.NoError(t, os.Chown(good.path, 65534, 65534))
		require.ErrorContains(t, good.Check(t.Context()), "belongs to user 65534")
	}
}

// A process that another one waits for is waited for all the same.
func TestAwaitEnd_ReturnsOnceTheProcessHasEnded(t *testing.T) {
	c := exec.Command("sleep", "1h")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- awaitEnd(c.Process.Pid) }()
	select {
	case err := <-ended:
		t.Errorf("it runs, and %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	if err := c.Process.Kill(); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	_ = c.Wait() // it was killed
	if err := awaitEnd(c.Process.Pid); err != nil {
		t.Errorf("of one that is gone: %v", err)
	}
}
