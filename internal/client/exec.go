package client

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
)

// Command is a one-off command (docs/api.md, "POST /v0/stacks/{id}/services/{name}/exec").
type Command struct {
	Service string
	Line    string // for the shell
	Timeout string // a duration such as 90s; "" for the server's default
}

// OutputLine is a line of a command's output, or a part of one.
type OutputLine struct {
	Line    string `json:"line"`
	Partial bool   `json:"partial,omitempty"` // no newline follows
}

// CommandEnd is how a command ended.
type CommandEnd struct {
	ExitCode  *int   `json:"exit_code"` // nil if it was ended from outside
	Truncated bool   `json:"truncated"` // the beginning of the output, or something in its middle, is missing
	TimedOut  bool   `json:"timed_out"`
	Error     string `json:"error,omitempty"` // why it was ended, apart from a timeout
}

// Exec runs a command in a stack's service and calls line with its output as it comes. The
// server ends the command if ctx ends, or line returns an error, which Exec returns.
func (c *Client) Exec(ctx context.Context, id string, command Command, line func(OutputLine) error) (*CommandEnd, error) {
	in := map[string]string{"command": command.Line}
	if command.Timeout != "" {
		in["timeout"] = command.Timeout
	}
	text, _ := json.Marshal(in) // texts always encode
	path := stackPath(id) + "/services/" + url.PathEscape(command.Service) + "/exec"
	req, err := c.request(ctx, http.MethodPost, path, nil, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", eventStream)
	res, err := c.send(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type")); kind != eventStream {
		return nil, &Error{Status: http.StatusBadGateway, Detail: fmt.Sprintf("%s answered %s instead of a stream of events, so another program answers for it", c.Server(), cmp.Or(kind, "nothing"))}
	}
	end, err := readCommand(bufio.NewReader(res.Body), line)
	if broken, ok := errors.AsType[streamError](err); ok {
		return nil, cmp.Or(ctx.Err(), error(&Unreachable{Server: c.Server(), Err: broken.error}))
	}
	return end, err
}

const eventStream = "text/event-stream"

// streamError is why a stream was not read to its end.
type streamError struct{ error }

// readCommand reads the events of a command.
func readCommand(in *bufio.Reader, line func(OutputLine) error) (*CommandEnd, error) {
	for {
		name, data, err := readEvent(in)
		if err != nil {
			return nil, streamError{err}
		}
		switch name {
		case "":
			var output OutputLine
			if err := json.Unmarshal(data, &output); err != nil {
				return nil, streamError{err}
			}
			if err := line(output); err != nil {
				return nil, err
			}
		case "exit":
			end := new(CommandEnd)
			if err := json.Unmarshal(data, end); err != nil {
				return nil, streamError{err}
			}
			return end, nil
		case "end":
			var refusal struct{ Detail string }
			if err := json.Unmarshal(data, &refusal); err != nil {
				return nil, streamError{err}
			}
			return nil, &Error{Status: http.StatusConflict, Detail: refusal.Detail}
		}
	}
}

// readEvent reads the next server-sent event, whose data is one line.
func readEvent(in *bufio.Reader) (name string, data []byte, err error) {
	for {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return "", nil, err
		}
		field, value, _ := bytes.Cut(bytes.TrimSuffix(line, []byte("\n")), []byte(": "))
		switch string(field) {
		case "event":
			name = string(value)
		case "data":
			data = value
		case "":
			if value == nil && data != nil { // otherwise it is a comment
				return name, data, nil
			}
		}
	}
}
