package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/docker/docker/api/types/build"
	"github.com/docker/docker/api/types/image"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/lastlines"
)

// failureTail is how much of an output an error contains, in bytes.
const failureTail = 4000

// MakeImage implements engine.Driver. It uses the engine's classic builder. The steps of a
// build that fails do not get the labels.
func (d *Driver) MakeImage(ctx context.Context, spec engine.ImageSpec, out io.Writer) error {
	args := make(map[string]*string, len(spec.Args))
	for name, value := range spec.Args {
		args[name] = &value
	}
	response, err := d.api.ImageBuild(ctx, spec.Context, build.ImageBuildOptions{
		Version:     build.BuilderV1,
		Tags:        []string{spec.Ref},
		BuildArgs:   args,
		Labels:      engine.SharedLabels(),
		Remove:      true,
		ForceRemove: true,
	})
	if err != nil {
		return wrap(err, "build image %s", spec.Ref)
	}
	last := lastlines.OfOutput(failureTail)
	if err := relay(io.MultiWriter(out, last), response.Body, nil); err != nil {
		return wrap(fmt.Errorf("%w%s", err, last.Phrase()), "build image %s", spec.Ref)
	}
	return nil
}

// Pull implements engine.Driver.
func (d *Driver) Pull(ctx context.Context, ref string, out io.Writer) error {
	body, err := d.api.ImagePull(ctx, ref, image.PullOptions{})
	return wrap(relay(out, body, err), "pull image %s", ref)
}

// Import implements engine.Driver.
func (d *Driver) Import(ctx context.Context, ref string, tar io.Reader, changes []string) error {
	source := image.ImportSource{Source: tar, SourceName: "-"}
	body, err := d.api.ImageImport(ctx, source, ref, image.ImportOptions{Changes: changes})
	return wrap(relay(io.Discard, body, err), "import image %s", ref)
}

// progress is one message of the engine about a long operation.
type progress struct {
	Stream string `json:"stream"` // text of a build's log
	Status string `json:"status"` // a step of a pull
	ID     string `json:"id"`     // the layer that Status is about
	Detail struct {
		Total int64 `json:"total"`
	} `json:"progressDetail"` // set while bytes move, many times a second
	Error string `json:"error"`
}

// uncolored removes the colours that the classic builder puts around standard error.
var uncolored = strings.NewReplacer("\x1b[91m", "", "\x1b[0m", "")

// relay writes the engine's messages to out as plain text until the operation ends, and
// returns its error: failed, if the operation did not even begin.
func relay(out io.Writer, body io.ReadCloser, failed error) error {
	if failed != nil {
		return failed
	}
	defer body.Close() // only read
	messages := json.NewDecoder(body)
	for {
		var message progress
		switch err := messages.Decode(&message); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read the engine's messages: %w", err)
		case message.Error != "":
			return errors.New(message.Error)
		}
		if _, err := uncolored.WriteString(out, message.text()); err != nil {
			return fmt.Errorf("write the log: %w", err)
		}
	}
}

// text returns what a person needs to see of a message, with its newline.
func (p *progress) text() string {
	switch {
	case p.Status == "", p.Detail.Total > 0:
		return p.Stream
	case p.ID == "":
		return p.Stream + p.Status + "\n"
	}
	return p.Stream + p.ID + ": " + p.Status + "\n"
}
