package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/berth-host/berth/images"
)

const (
	deployGoal = 1.15 // ratio to the same steps by hand
	liveGoal   = 300  // milliseconds from the last byte of a static site to its first answer
	runtimeRef = "node@22"
	pollEvery  = 5 * time.Millisecond
	deployTime = time.Minute // longest that one deploy may take
)

// berth is a whole server under measurement.
type berth struct {
	*target
	data string // its data directory
}

// measureDeploys compares deploys with the same steps by hand.
func (b *bench) measureDeploys(ctx context.Context) error {
	hand, err := newByHand(ctx)
	if err != nil {
		return err
	}
	defer hand.Close()
	progress("making the base image of %s, if it is missing", runtimeRef)
	if err := quiet(ctx, nil, filepath.Join(b.bin, "berthd"), "images", "build", runtimeRef); err != nil {
		return err
	}
	server, err := b.startBerth(ctx)
	if err != nil {
		return err
	}
	defer hand.sweep(server.data)
	defer server.stop()
	if err := b.measureProgram(ctx, server, hand); err != nil {
		return server.fault(err.Error())
	}
	if err := b.measureSite(ctx, server); err != nil {
		return server.fault(err.Error())
	}
	return nil
}

// startBerth starts the server with a data directory of its own.
func (b *bench) startBerth(ctx context.Context) (*berth, error) {
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	_, port, _ := strings.Cut(addr, ":")
	data := filepath.Join(b.dir, "data")
	env := []string{
		"BERTH_LISTEN=" + addr, "BERTH_BASE_URL=http://localhost:" + port, "BERTH_DATA_DIR=" + data,
		"BERTH_UNCLAIMED_PER_IP=1000", "BERTH_CREATES_PER_HOUR=100000",
	}
	t, err := b.startServer(ctx, "berthd", addr, env, filepath.Join(b.bin, "berthd"))
	if err != nil {
		return nil, err
	}
	return &berth{t, data}, nil
}

// measureProgram compares a Node program's way to its first answer.
func (b *bench) measureProgram(ctx context.Context, server *berth, hand *byHand) error {
	program, err := programArchive()
	if err != nil {
		return err
	}
	image, err := images.Lookup("node", strings.TrimPrefix(runtimeRef, "node@"))
	if err != nil {
		return err
	}
	for _, way := range []struct {
		peer       string
		ownNetwork bool
		goal       float64
	}{{"by hand", false, deployGoal}, {"by hand, own network", true, 0}} {
		own, other, err := b.inPairs(ctx,
			func(ctx context.Context) (time.Duration, error) {
				start := time.Now()
				live, _, err := server.deploy(ctx, program)
				return live.Sub(start), err
			},
			func(ctx context.Context) (time.Duration, error) {
				return hand.deploy(ctx, image.Ref(), program, way.ownNetwork)
			})
		if err != nil {
			return err
		}
		b.table.compare("deploy, 100 files, two commands: POST to first answer", millis, own, way.peer, other, way.goal)
	}
	return nil
}

// measureSite measures how soon an uploaded site answers.
func (b *bench) measureSite(ctx context.Context, server *berth) error {
	folder, err := b.writeFolder()
	if err != nil {
		return err
	}
	nginx, err := b.startNginx(ctx, "nginx", "auto", folder)
	if err != nil {
		return err
	}
	defer nginx.stop()
	site, err := siteArchive()
	if err != nil {
		return err
	}
	own, other, err := b.inPairs(ctx,
		func(ctx context.Context) (time.Duration, error) {
			live, sent, err := server.deploy(ctx, site)
			return live.Sub(sent), err
		},
		func(ctx context.Context) (time.Duration, error) { return unpackByHand(ctx, nginx, folder, site) })
	if err != nil {
		return err
	}
	b.table.limit("static site live, 100 files: last byte to first answer", millis, own, "tar, nginx", other, liveGoal)
	return nil
}

// inPairs takes two times in turns, every second pair the other way round, in
// milliseconds. A first pair does not count.
func (b *bench) inPairs(ctx context.Context, own, other func(context.Context) (time.Duration, error)) (owns, others []float64, err error) {
	var took [2]time.Duration
	measures := [2]func(context.Context) (time.Duration, error){own, other}
	for n := range b.deploys + 1 {
		for i := range measures {
			which := (i + n) % 2
			limited, cancel := context.WithTimeout(ctx, deployTime)
			took[which], err = measures[which](limited)
			cancel()
			if err != nil {
				return nil, nil, err
			}
		}
		if n > 0 {
			owns = append(owns, took[0].Seconds()*1000)
			others = append(others, took[1].Seconds()*1000)
		}
	}
	return owns, others, nil
}

// deployed is what the bench needs of a create's answer.
type deployed struct {
	ID    string            `json:"id"`
	URLs  map[string]string `json:"urls"`
	Token string            `json:"manage_token"`
}

// deploy uploads an archive as a new stack, and tells when its last byte was
// sent and when the stack first answered. It has the create wait until the
// stack is live: asking all the time would slow what is measured. The stack is
// gone afterwards.
func (s *berth) deploy(ctx context.Context, archive []byte) (live, sent time.Time, err error) {
	body := &timedBody{}
	contentType, err := body.fill(archive)
	if err != nil {
		return live, sent, err
	}
	var made deployed
	if err := s.call(ctx, http.MethodPost, "/v0/stacks?wait=true", "", contentType, body, &made); err != nil {
		return live, sent, err
	}
	live, err = s.firstAnswer(ctx, made)
	if err := s.call(context.WithoutCancel(ctx), http.MethodDelete, "/v0/stacks/"+made.ID, made.Token, "", nil, nil); err != nil {
		return live, sent, err
	}
	return live, body.sent, err
}

// firstAnswer asks the stack's public URL until it answers with 200. When it
// does not, the error is what the server says of the stack.
func (s *berth) firstAnswer(ctx context.Context, made deployed) (time.Time, error) {
	host := strings.TrimPrefix(made.URLs["web"], "http://")
	at, err := poll(ctx, "http://"+s.addr+"/", host)
	if err != nil {
		var state json.RawMessage
		if s.call(context.WithoutCancel(ctx), http.MethodGet, "/v0/stacks/"+made.ID, made.Token, "", nil, &state) == nil {
			err = fmt.Errorf("%w; the stack: %s", err, state)
		}
	}
	return at, err
}

// poll asks for a URL until it answers with 200, and returns when that was.
func poll(ctx context.Context, url, host string) (time.Time, error) {
	for {
		if status, _, err := get(ctx, url, host); err == nil && status == http.StatusOK {
			return time.Now(), nil
		}
		select {
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("no 200 from %s: %w", host, ctx.Err())
		case <-time.After(pollEvery):
		}
	}
}

// call makes one request of the API.
func (s *berth) call(ctx context.Context, method, path, token, contentType string, body io.Reader, into any) error {
	r, err := http.NewRequestWithContext(ctx, method, "http://"+s.addr+path, body)
	if err != nil {
		return err
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	if sized, ok := body.(*timedBody); ok {
		r.ContentLength = int64(sized.Len())
		r.Header.Set("Content-Type", contentType)
	}
	answer, err := direct.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode >= 300 {
		err = fmt.Errorf("%s %s: status %d: %s", method, path, answer.StatusCode, text)
	}
	if err != nil || into == nil {
		return err
	}
	return json.Unmarshal(text, into)
}

// timedBody is an upload that knows when its last byte was taken.
type timedBody struct {
	bytes.Buffer
	sent time.Time
}

// fill writes the form of a create and returns its content type.
func (t *timedBody) fill(archive []byte) (contentType string, err error) {
	form := multipart.NewWriter(&t.Buffer)
	part, err := form.CreateFormFile("source", "source.tar")
	if err != nil {
		return "", err
	}
	if _, err := part.Write(archive); err != nil {
		return "", err
	}
	return form.FormDataContentType(), form.Close()
}

func (t *timedBody) Read(p []byte) (int, error) {
	n, err := t.Buffer.Read(p)
	if n > 0 && t.Len() == 0 {
		t.sent = time.Now()
	}
	return n, err
}

// WriteTo hides the buffer's own, which would go past Read.
func (t *timedBody) WriteTo(w io.Writer) (int64, error) {
	return io.Copy(w, struct{ io.Reader }{t})
}
