package api

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/stack"
)

func dataPath(m made, service string) string {
	return "/v0/stacks/" + m.id + "/services/" + service + "/data"
}

func TestData_PassesThrough(t *testing.T) {
	e := newEnv(t)
	m := e.runs("")
	e.host.readData = func(_ context.Context, service string, stop bool, w io.Writer) error {
		_, err := io.WriteString(w, service+" "+map[bool]string{true: "stopped", false: "runs"}[stop])
		return err
	}
	r := e.send("GET", dataPath(m, "web"), m.token, nil)
	require.Equal(t, http.StatusOK, r.status)
	require.Equal(t, "web runs", r.body)
	require.Equal(t, "application/gzip", r.header.Get("Content-Type"))
	require.Equal(t, "web stopped", e.send("GET", dataPath(m, "web")+"?stop=true", m.token, nil).body)
	var got string
	e.host.replaceData = func(service string, data io.Reader) error {
		text, err := io.ReadAll(data)
		got = service + " " + string(text)
		return err
	}
	r = e.send("PUT", dataPath(m, "web"), m.token, strings.NewReader("an archive"))
	require.Equal(t, http.StatusOK, r.status, r.body)
	require.Equal(t, "web an archive", got)
	require.Contains(t, r.body, m.id)
}

// An answer that fails in the middle has no end that could be taken for the archive's.
func TestData_ThatFailsBreaksOff(t *testing.T) {
	e := newEnv(t)
	m := e.runs("")
	e.host.readData = func(context.Context, string, bool, io.Writer) error {
		return stack.NewError(stack.Conflict, "not now")
	}
	require.Equal(t, http.StatusConflict, e.send("GET", dataPath(m, "web"), m.token, nil).status)
	e.host.readData = func(_ context.Context, _ string, _ bool, w io.Writer) error {
		if _, err := w.Write(make([]byte, 1<<20)); err != nil {
			return err
		}
		return errors.New("the disk broke")
	}
	req := newRequest(t, "GET", dataPath(m, "web"), m.token, nil)
	res, err := e.client.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	require.Equal(t, http.StatusOK, res.StatusCode)
	_, err = io.Copy(io.Discard, res.Body)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
}
