package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const (
	runtimeRef = "node@22"
	goRef      = "go@1.26"
	pollEvery  = 5 * time.Millisecond
)

// berth is a complete server under measurement.
type berth struct {
	target  *target
	admin   string    // address of its page for operators
	data    string    // its data directory
	env     []string  // of its process
	started time.Time // its process, the last one
	hand    *byHand   // what is done beside it
}

// withBerth starts a server with the section's settings, which win over the usual ones,
// and calls measure. It leaves nothing of the server behind.
func (b *bench) withBerth(ctx context.Context, settings []string, measure func(context.Context, *berth) error) error {
	server, err := b.openBerth(ctx, settings)
	if err != nil {
		return err
	}
	defer server.close()
	if err := measure(ctx, server); err != nil {
		return server.target.process.fault(err.Error())
	}
	return nil
}

// openBerth starts a server with the section's settings, which win over the usual ones.
func (b *bench) openBerth(ctx context.Context, settings []string) (*berth, error) {
	if _, err := b.makeBase(ctx, runtimeRef); err != nil {
		return nil, err
	}
	server, err := b.newBerth(ctx, settings)
	if err != nil {
		return nil, err
	}
	if err := b.launch(ctx, server); err != nil {
		server.close()
		return nil, err
	}
	return server, nil
}

// makeBase makes the base image of a runtime, unless it is there, and returns its name.
func (b *bench) makeBase(ctx context.Context, runtime string) (ref string, err error) {
	progress("making the base image of %s, if it is missing", runtime)
	out, err := exec.CommandContext(ctx, filepath.Join(b.bin, "berthd"), "images", "build", runtime).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("base image of %s: %w\n%s", runtime, err, out)
	}
	_, end, _ := strings.Cut(string(out), runtime+": ")
	ref, _, _ = strings.Cut(end, " ")
	return ref, nil
}

// close stops the server and leaves nothing of it behind.
func (s *berth) close() {
	if s.target.process != nil {
		s.target.process.stop()
	}
	s.hand.sweep(s.data)
	s.hand.engine.Close()
}

// newBerth returns a server with its own data directory and address, which is not
// started yet.
func (b *bench) newBerth(ctx context.Context, settings []string) (*berth, error) {
	data, err := os.MkdirTemp(b.dir, "data-")
	if err != nil {
		return nil, err
	}
	addr, err1 := freeAddr()
	admin, err2 := freeAddr()
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	_, port, _ := strings.Cut(addr, ":")
	env := []string{
		"BERTH_LISTEN=" + addr, "BERTH_ADMIN_LISTEN=" + admin, "BERTH_BASE_URL=http://localhost:" + port, "BERTH_DATA_DIR=" + data,
		"BERTH_UNCLAIMED_PER_IP=1000", "BERTH_CREATES_PER_HOUR=100000",
	}
	if b.pool != "" {
		env = append(env, "BERTH_NETWORK_POOL="+b.pool)
	}
	hand, err := newByHand(ctx)
	if err != nil {
		return nil, err
	}
	return &berth{target: &target{addr: addr}, admin: admin, data: data, env: append(env, settings...), hand: hand}, nil
}

// launch starts the server's process and waits until it serves; it listens before that.
func (b *bench) launch(ctx context.Context, s *berth) error {
	s.started = time.Now()
	t, err := b.startServer(ctx, "berthd", s.target.addr, s.env, filepath.Join(b.bin, "berthd"))
	if err != nil {
		return err
	}
	s.target = t
	return s.serves(ctx)
}

// serves waits until the server has answered that it is healthy.
func (s *berth) serves(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.target.addr+"/healthz", nil)
		if err != nil {
			return err
		}
		res, err := http.DefaultClient.Do(req)
		if err == nil {
			res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return s.target.process.fault("it does not serve")
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// deployed is the part of a stack object that the bench needs.
type deployed struct {
	ID          string            `json:"id"`
	Status      string            `json:"status"`
	Generation  int               `json:"generation"`
	Error       string            `json:"error"`
	DeployError string            `json:"deploy_error"`
	URLs        map[string]string `json:"urls"`
	Token       string            `json:"manage_token"`
	ClaimCode   string            `json:"claim_code"`
}

// host returns the host name of the stack's only service.
func (d deployed) host() string { return strings.TrimPrefix(d.URLs["web"], "http://") }

// create uploads an archive as a new stack and waits until it is live. It also returns
// when the last byte was sent.
func (s *berth) create(ctx context.Context, archive []byte) (made deployed, sent time.Time, err error) {
	sent, err = s.sendArchive(ctx, "/v0/stacks?wait=true", "", archive, &made)
	if err == nil && made.Status != "live" {
		err = fmt.Errorf("stack %s is %s: %s", made.ID, made.Status, made.Error)
	}
	return made, sent, err
}

// createProgram creates a stack of the program of 100 files, and also returns its archive.
func (s *berth) createProgram(ctx context.Context) (made deployed, program []byte, err error) {
	if program, err = programArchive(); err != nil {
		return made, nil, err
	}
	made, _, err = s.create(ctx, program)
	return made, program, err
}

// removeStack deletes a stack, even if ctx has ended.
func (s *berth) removeStack(ctx context.Context, made deployed) error {
	return s.call(context.WithoutCancel(ctx), http.MethodDelete, "/v0/stacks/"+made.ID, made.Token, "", nil, nil)
}

// firstAnswer requests the stack's public URL until it answers with 200. If it does
// not, the error is what the server says about the stack.
func (s *berth) firstAnswer(ctx context.Context, made deployed) (time.Time, error) {
	at, err := poll(ctx, "http://"+s.target.addr+"/", made.host())
	if err != nil {
		var state json.RawMessage
		if s.call(context.WithoutCancel(ctx), http.MethodGet, "/v0/stacks/"+made.ID, made.Token, "", nil, &state) == nil {
			err = fmt.Errorf("%w; the stack: %s", err, state)
		}
	}
	return at, err
}

// ask sends one request to the stack's program and returns the answer.
func (s *berth) ask(ctx context.Context, made deployed, path string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.target.addr+path, nil)
	if err != nil {
		return "", err
	}
	r.Host = made.host()
	answer, err := direct.Do(r)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: status %d: %s", path, answer.StatusCode, text)
	}
	return string(text), err
}

// poll requests a URL until it answers with 200, and returns when that was.
func poll(ctx context.Context, url, host string) (time.Time, error) {
	for {
		if status, _, err := get(ctx, url, host); err == nil && status == http.StatusOK {
			return time.Now(), nil
		}
		if err := pause(ctx, pollEvery); err != nil {
			return time.Time{}, fmt.Errorf("no 200 from %s: %w", host, err)
		}
	}
}

// pause waits, or returns the error of a context that ends first.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// sendArchive sends an archive, and returns when its last byte was sent.
func (s *berth) sendArchive(ctx context.Context, path, token string, archive []byte, into any) (sent time.Time, err error) {
	body := &timedBody{}
	contentType, err := body.fill(archive)
	if err != nil {
		return sent, err
	}
	err = s.call(ctx, http.MethodPost, path, token, contentType, body, into)
	return body.sent, err
}

// send sends a request to the API with a JSON body.
func (s *berth) send(ctx context.Context, method, path, token string, v, into any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return s.call(ctx, method, path, token, "application/json", bytes.NewReader(body), into)
}

// call sends one request to the API.
func (s *berth) call(ctx context.Context, method, path, token, contentType string, body io.Reader, into any) error {
	header := http.Header{}
	if token != "" {
		header.Set("Authorization", "Bearer "+token)
	}
	if contentType != "" {
		header.Set("Content-Type", contentType)
	}
	_, err := s.exchange(ctx, method, path, header, body, into)
	return err
}

// exchange sends one request to the API with these headers, and returns the headers of
// the answer.
func (s *berth) exchange(ctx context.Context, method, path string, header http.Header, body io.Reader, into any) (http.Header, error) {
	r, err := http.NewRequestWithContext(ctx, method, "http://"+s.target.addr+path, body)
	if err != nil {
		return nil, err
	}
	r.Header = header
	if sized, ok := body.(*timedBody); ok {
		r.ContentLength = int64(sized.left.Len())
	}
	answer, err := direct.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode >= 300 {
		err = fmt.Errorf("%s %s: status %d: %s", method, path, answer.StatusCode, text)
	}
	if err != nil || into == nil {
		return answer.Header, err
	}
	return answer.Header, json.Unmarshal(text, into)
}

// timedBody is an upload that records when its last byte was read.
type timedBody struct {
	left bytes.Buffer
	sent time.Time
}

// fill writes the form of a create and returns its content type.
func (t *timedBody) fill(archive []byte) (contentType string, err error) {
	form := multipart.NewWriter(&t.left)
	part, err := form.CreateFormFile("source", "source.tar")
	if err != nil {
		return "", err
	}
	_, err = part.Write(archive)
	return form.FormDataContentType(), errors.Join(err, form.Close())
}

func (t *timedBody) Read(p []byte) (int, error) {
	n, err := t.left.Read(p)
	if n > 0 && t.left.Len() == 0 {
		t.sent = time.Now()
	}
	return n, err
}
