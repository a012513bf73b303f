package web

import (
	"bytes"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/stack"
)

// upload sends a form with parts in order: name, content, name, content.
func (b *visitor) upload(path string, parts ...string) reply {
	b.t.Helper()
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	for i := 0; i < len(parts); i += 2 {
		var part io.Writer
		var err error
		if parts[i] == "data" {
			part, err = form.CreateFormFile("data", "data.tar.gz")
		} else {
			part, err = form.CreateFormField(parts[i])
		}
		require.NoError(b.t, err)
		_, err = io.WriteString(part, parts[i+1])
		require.NoError(b.t, err)
	}
	require.NoError(b.t, form.Close())
	req := b.request(http.MethodPost, path, &body)
	req.Header.Set("Content-Type", form.FormDataContentType())
	return b.do(req)
}

func TestData_GoesOutAndInByThePage(t *testing.T) {
	e := newEnv(t)
	b := e.signedUp(ana)
	id := e.owned(b, "guestbook")
	page := "/dashboard/stacks/" + id + "/data"
	require.Contains(t, b.get("/dashboard/stacks/"+id).body, page)
	body := b.get(page).body
	require.Contains(t, body, page+"/api")
	require.NotContains(t, body, page+"/web", "a static service has no data")
	require.Less(t, strings.Index(body, `name="token"`), strings.Index(body, `name="data"`))

	r := b.get(page + "/api")
	require.Equal(t, "data of api, stopped: false", r.body)
	require.Equal(t, "application/gzip", r.header.Get("Content-Type"))
	require.Contains(t, r.header.Get("Content-Disposition"), "guestbook-api-data.tar.gz")
	require.Equal(t, "data of api, stopped: true", b.get(page+"/api?stop=true").body)
	require.Equal(t, http.StatusConflict, b.get(page+"/web").status)
	require.Equal(t, http.StatusNotFound, b.get(page+"/other").status)

	large := strings.Repeat("0123456789abcdef", maxBody/4) // far more than any other form
	r = b.upload(page+"/api", "token", b.token(), "data", large)
	require.Equal(t, http.StatusSeeOther, r.status, r.body)
	require.Contains(t, b.get(r.header.Get("Location")).body, "The service api has the new data.")
	require.Equal(t, []string{fmt.Sprintf("api has %d bytes", len(large))}, e.host.restarts)
	r = b.upload(page+"/api", "token", b.token(), "data", "short")
	require.Contains(t, b.get(r.header.Get("Location")).body, "The archive is cut short.")

	require.Equal(t, http.StatusForbidden, b.upload(page+"/api", "token", "another", "data", large).status)
	require.Equal(t, http.StatusForbidden, b.upload(page+"/api", "data", large, "token", b.token()).status)
	require.Equal(t, http.StatusBadRequest, b.upload(page+"/api", "token", b.token()).status)
	require.Equal(t, http.StatusForbidden, b.post(page+"/api", nil).status)
	require.Len(t, e.host.restarts, 1)
	other := e.signedUp("bob@example.com")
	require.Equal(t, http.StatusNotFound, other.get(page).status)
	require.Equal(t, http.StatusNotFound, other.upload(page+"/api", "token", other.token(), "data", large).status)

	e.change(id, func(s *stack.Stack) ([]stack.Event, error) {
		return s.Deploy(stack.Services([]stack.Spec{{Name: "api"}}), stack.Now())
	})
	require.NotContains(t, b.get(page).body, `name="data"`)
	require.Equal(t, http.StatusConflict, b.get(page+"/api").status)
}

func TestForms_HaveALimit(t *testing.T) {
	e := newEnv(t)
	b := e.visitor()
	for _, length := range []int64{maxBody + 1, -1} {
		rest, end := io.Pipe() // nothing more is sent, so that the server cannot close while something is
		body := io.MultiReader(strings.NewReader("email="+strings.Repeat("x", 8<<10)), rest)
		if length < 0 {
			body = rest // it is refused by its head alone
		}
		req := b.request(http.MethodPost, "/signin", body)
		req.ContentLength = length
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		require.Equal(t, http.StatusRequestEntityTooLarge, b.do(req).status)
		require.NoError(t, end.Close())
	}
}

func TestStackPage_OffersANewerImageOfADatabase(t *testing.T) {
	e := newEnv(t)
	b := e.signedUp(ana)
	id := e.owned(b, "guestbook")
	e.change(id, func(s *stack.Stack) ([]stack.Event, error) {
		s.Generation.Services = append(s.Generation.Services, stack.Service{Status: stack.Running, Spec: stack.Spec{
			Name: "db", Runtime: stack.Runtime{Name: "postgres", Version: "17"}, Label: "postgres@17", Root: ".",
		}})
		return nil, nil
	})
	const offer = "A newer PostgreSQL 17 image is ready; it is taken at the next restart."
	require.NotContains(t, b.get("/dashboard/stacks/"+id).body, offer)
	e.host.outdated = []string{"db"}
	require.Equal(t, 1, strings.Count(b.get("/dashboard/stacks/"+id).body, offer))
	require.NotContains(t, b.get("/dashboard").body, offer)
}

func TestStack_SaysThatItTakesTooMuchOfTheDisk(t *testing.T) {
	e := newEnv(t, func(c *Config) {
		c.Quota = stack.Quota{Stacks: 3, Disk: 2e9}
		c.DiskLimit = 10e6
	})
	b := e.signedUp(ana)
	id := e.owned(b, "guestbook")
	require.NotContains(t, b.get("/dashboard/stacks/"+id).body, "too much of the disk")
	require.NoError(t, e.store.SetDisk(t.Context(), id, stack.Disk{At: stack.Now(), Images: 11e6}, ""))
	body := b.get("/dashboard/stacks/" + id).body
	require.Contains(t, body, "This stack takes too much of the disk.")
	require.Contains(t, body, "the stack takes 11 MB of the disk (data 0.0 MB, images 11.0 MB, source 0.0 MB, files beside the data 0.0 MB, build caches 0.0 MB) and may take 10 MB")

	body = b.get("/dashboard/account").body
	require.Contains(t, body, "<dt>Stacks</dt><dd>1 of 3</dd>")
	require.Contains(t, body, "<dt>Disk space</dt><dd>11 MB of 2 GB</dd>")
	require.NotContains(t, body, "<dt>Memory</dt>")
}
