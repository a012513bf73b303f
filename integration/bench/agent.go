package main

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// settleTime is how long the server is left alone after an edit, while the old
// generation goes and what was postponed is done.
const settleTime = 2 * time.Second

// agent changes one line of a project and deploys it, again and again.
type agent struct {
	server  *berth
	project *project
	made    deployed
	answer  string // the last one of the project
	tag     string // of the served source; "" until the server has given one
	edits   int
}

// newAgent creates a stack of a project.
func (s *berth) newAgent(ctx context.Context, p *project) (*agent, error) {
	source, err := p.whole(0)
	if err != nil {
		return nil, err
	}
	a := &agent{server: s, project: p}
	if a.made, _, err = s.create(ctx, source); err != nil {
		return nil, err
	}
	if _, err = a.firstChange(ctx); err != nil {
		return nil, err
	}
	return a, pause(ctx, settleTime)
}

// remove deletes the agent's stack.
func (a *agent) remove(ctx context.Context) error { return a.server.removeStack(ctx, a.made) }

// postToAnswer makes an edit and returns how long it took from the start of the POST to
// the first answer that shows it.
func (a *agent) postToAnswer(ctx context.Context) (time.Duration, error) {
	posted, _, live, err := a.edit(ctx)
	return live.Sub(posted), err
}

// sentToAnswer makes an edit and returns how long it took from the last byte of the
// upload to the first answer that shows it.
func (a *agent) sentToAnswer(ctx context.Context) (time.Duration, error) {
	_, sent, live, err := a.edit(ctx)
	return live.Sub(sent), err
}

// edit changes the line, deploys the change and waits until the public URL shows it. It
// returns when the POST began, when its last byte was sent, and when the change was seen.
func (a *agent) edit(ctx context.Context) (posted, sent, live time.Time, err error) {
	a.edits++
	path, header, archive, err := a.upload()
	if err != nil {
		return posted, sent, live, err
	}
	body := &timedBody{}
	contentType, err := body.fill(archive)
	if err != nil {
		return posted, sent, live, err
	}
	header.Set("Content-Type", contentType)
	header.Set("Authorization", "Bearer "+a.made.Token)
	var now deployed
	posted = time.Now()
	answered, err := a.server.exchange(ctx, http.MethodPost, path, header, body, &now)
	if err == nil && now.Generation != a.made.Generation+1 {
		err = fmt.Errorf("generation %d is served, not %d: %s", now.Generation, a.made.Generation+1, now.DeployError)
	}
	if err != nil {
		return posted, sent, live, err
	}
	a.made.Generation, a.tag = now.Generation, answered.Get("ETag")
	if live, err = a.firstChange(ctx); err != nil {
		return posted, sent, live, err
	}
	return posted, body.sent, live, pause(ctx, settleTime)
}

// upload returns the request of an edit. It sends only the file that changed once the
// server has answered with the digest of a source.
func (a *agent) upload() (path string, header http.Header, archive []byte, err error) {
	path, header = "/v0/stacks/"+a.made.ID+"/deploy?wait=true", http.Header{}
	if a.tag == "" {
		archive, err = a.project.whole(a.edits)
		return path, header, archive, err
	}
	header.Set("If-Match", a.tag)
	archive, err = a.project.overlay(a.edits)
	return path + "&base=" + strconv.Itoa(a.made.Generation), header, archive, err
}

// firstChange requests the public URL until its answer is another one than before.
func (a *agent) firstChange(ctx context.Context) (time.Time, error) {
	for {
		text, err := a.server.ask(ctx, a.made, a.project.shows)
		if err == nil && text != a.answer {
			a.answer = text
			return time.Now(), nil
		}
		if wait := pause(ctx, pollEvery); wait != nil {
			return time.Time{}, fmt.Errorf("no change at the public URL: %w; the last answer: %.200s %v", wait, text, err)
		}
	}
}
