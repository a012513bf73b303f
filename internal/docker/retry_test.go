package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/berth-host/berth/internal/engine"
)

func TestRetry_AsksUntilAnAnswerComes(t *testing.T) {
	refusal := errors.New("refused")
	lost := fmt.Errorf("lost: %w", engine.ErrUnreachable)
	for name, c := range map[string]struct {
		answers []error
		want    error
		asked   int
	}{
		"at once":         {[]error{nil}, nil, 1},
		"a refusal":       {[]error{refusal}, refusal, 1},
		"the second time": {[]error{lost, nil}, nil, 2},
		"never":           {[]error{lost, lost, lost, nil}, lost, retryTries},
	} {
		t.Run(name, func(t *testing.T) {
			asked := 0
			err := retry(t.Context(), func() error {
				asked++
				return c.answers[asked-1]
			})
			if !errors.Is(err, c.want) || asked != c.asked {
				t.Errorf("%v after %d requests, want %v after %d", err, asked, c.want, c.asked)
			}
		})
	}
}

func TestRetryUndone_AsksAgainOnlyWhenItIsKnownThatNothingWasDone(t *testing.T) {
	refusal := errors.New("refused")
	lost := fmt.Errorf("lost: %w", engine.ErrUnreachable)
	type look struct {
		did bool
		err error
	}
	unknown, undone, done := look{false, lost}, look{}, look{did: true}
	for name, c := range map[string]struct {
		answers []error
		looks   []look
		want    error
	}{
		"at once":                   {[]error{nil}, nil, nil},
		"a refusal":                 {[]error{refusal}, nil, refusal},
		"done":                      {[]error{lost}, []look{done}, nil},
		"known later to be done":    {[]error{lost}, []look{unknown, unknown, done}, nil},
		"known later to be undone":  {[]error{lost, nil}, []look{unknown, undone}, nil},
		"never known":               {[]error{lost}, []look{unknown, unknown, unknown}, lost},
		"gone":                      {[]error{lost}, []look{unknown, {err: engine.ErrNotFound}}, engine.ErrNotFound},
		"done late and so refused":  {[]error{lost, refusal}, []look{undone, undone, done}, nil},
		"undone and then refused":   {[]error{lost, refusal}, []look{undone, undone, undone}, refusal},
		"lost twice and undone":     {[]error{lost, lost, nil}, []look{undone, undone, undone, undone}, nil},
		"the last one lost is done": {[]error{lost, lost, lost}, []look{undone, undone, undone, undone, done}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			asked, looked := 0, 0
			err := retryUndone(t.Context(), func() error {
				asked++
				return c.answers[asked-1]
			}, func() (bool, error) {
				looked++
				return c.looks[looked-1].did, c.looks[looked-1].err
			})
			if !errors.Is(err, c.want) || asked != len(c.answers) || looked != len(c.looks) {
				t.Errorf("%v after %d requests and %d looks", err, asked, looked)
			}
		})
	}
}

func TestRetryRemoval_GoesOnForLongerAndEndsWithTheContext(t *testing.T) {
	asked := 0
	err := retryRemoval(t.Context(), func(context.Context) error {
		if asked++; asked <= 2*retryTries {
			return []error{engine.ErrUnreachable, errConflict}[asked%2]
		}
		return nil
	}, errConflict)
	if err != nil || asked != 2*retryTries+1 {
		t.Errorf("%v after %d requests", err, asked)
	}
	ctx, cancel := context.WithCancel(t.Context())
	err = retryRemoval(ctx, func(context.Context) error {
		cancel()
		return engine.ErrUnreachable
	})
	if !errors.Is(err, engine.ErrUnreachable) {
		t.Errorf("%v, want the last error", err)
	}
}

func TestRetryLong_GoesOnForLongerAndEndsWithTheContext(t *testing.T) {
	asked := 0
	err := retryLong(t.Context(), func() error {
		if asked++; asked <= 2*retryTries {
			return engine.ErrUnreachable
		}
		return errConflict
	})
	if !errors.Is(err, errConflict) || asked != 2*retryTries+1 {
		t.Errorf("%v after %d requests", err, asked)
	}
	ctx, cancel := context.WithCancel(t.Context())
	err = retryLong(ctx, func() error {
		cancel()
		return engine.ErrUnreachable
	})
	if !errors.Is(err, engine.ErrUnreachable) {
		t.Errorf("%v, want the last error", err)
	}
}

// An engine that shuts down answers on open connections but takes no new ones.
func TestAccepts_AsksOnANewConnection(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "e.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Api-Version", "1.41")
		io.WriteString(w, "{}") //nolint:errcheck // the test sees it
	})}
	go server.Serve(listener) //nolint:errcheck // it ends with the test
	t.Cleanup(func() { server.Close() })
	e, err := open(t.Context(), "unix://"+socket, quiet)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	d := NewDriver(e, Info{}, DriverOptions{})
	if err := d.Accepts(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := e.api.Ping(t.Context()); err != nil {
		t.Errorf("the open connection does not answer: %v", err)
	}
	if err := d.Accepts(t.Context()); err == nil {
		t.Error("a new connection was taken")
	}
}

func TestMayPass_WhatAnEngineThatStartsMayMeet(t *testing.T) {
	for cause, want := range map[error]bool{
		engine.ErrUnreachable: true,
		syscall.EMFILE:        true,
		syscall.ENFILE:        true,
		syscall.ENOTDIR:       false,
		engine.ErrNotFound:    false,
		errors.New("no"):      false,
	} {
		if got := MayPass(fmt.Errorf("open engine: %w", cause)); got != want {
			t.Errorf("MayPass(%v) = %t", cause, got)
		}
	}
}
