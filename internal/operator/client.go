package operator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"syscall"

	"github.com/berth-host/berth/internal/datadir"
)

// Client gives commands to the server of a data directory. Its errors are worded for the
// operator.
type Client struct {
	dir  string
	http http.Client
}

// ErrNoServer means that no server runs that could be told anything.
var ErrNoServer = errors.New("no berthd is running on")

// NewClient returns a client, which connects with each command.
func NewClient(dir string) *Client {
	c := &Client{dir: dir}
	c.http.Transport = &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx, dir) },
	}
	return c
}

// send gives a command and returns what the server answers.
func send[R any](ctx context.Context, c *Client, path string, args any) (result R, err error) {
	res, err := c.post(ctx, path, args)
	if err != nil {
		return result, err
	}
	defer res.Body.Close()
	return result, json.NewDecoder(res.Body).Decode(&result)
}

// post gives a command and returns the answer, whose body the caller closes, unless the command
// is refused.
func (c *Client) post(ctx context.Context, path string, args any) (*http.Response, error) {
	body, err := json.Marshal(args)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://berthd"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	res, err := c.http.Do(req)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		if datadir.Dir(c.dir).IsLocked() {
			return nil, fmt.Errorf("the berthd on %s is still starting; try again in a moment", c.dir)
		}
		return nil, fmt.Errorf("%w %s", ErrNoServer, c.dir)
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("only the user of the server and root may give it commands: %w", err)
	case err != nil:
		return nil, err
	case res.StatusCode == http.StatusOK:
		return res, nil
	}
	defer res.Body.Close()
	var refused refusal
	if err := json.NewDecoder(res.Body).Decode(&refused); err != nil {
		return nil, fmt.Errorf("the server answered %s", res.Status)
	}
	return nil, errors.New(refused.Detail)
}

// trailerWithin is how many bytes the trailer of a backup may be away, at most, when its reader
// finds that it is cut off.
const trailerWithin = 1 << 20

// BackUp calls read with a backup, as a tar that is not encrypted. If the server cannot end it,
// the tar is cut off and the error says why.
func (c *Client) BackUp(ctx context.Context, b Backup, read func(io.Reader) error) error {
	res, err := c.post(ctx, "/backup", b)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if err = read(res.Body); err == nil {
		return nil
	}
	_, rest := io.CopyN(io.Discard, res.Body, trailerWithin) // it is not waited for if reading failed here
	switch why := res.Trailer.Get(backupError); {
	case why != "":
		return errors.New(why)
	case errors.Is(rest, io.ErrUnexpectedEOF):
		return errors.New("the server ended before the backup was complete; run the command again once it has started")
	}
	return err
}

// Stacks returns all stacks, newest first.
func (c *Client) Stacks(ctx context.Context) (Stacks, error) {
	return send[Stacks](ctx, c, "/stacks/list", none{})
}

// Stack returns a stack with its services.
func (c *Client) Stack(ctx context.Context, id string) (Stack, error) {
	return send[Stack](ctx, c, "/stacks/show", stackID{id})
}

// StopStack makes a stack failed for a reason that its owner is told. Its data stays.
func (c *Client) StopStack(ctx context.Context, id, reason string) error {
	_, err := send[none](ctx, c, "/stacks/stop", stopping{id, reason})
	return err
}

// DeleteStack deletes a stack with its data.
func (c *Client) DeleteStack(ctx context.Context, id string) error {
	_, err := send[none](ctx, c, "/stacks/delete", stackID{id})
	return err
}

// Accounts returns all accounts, in the order of their emails.
func (c *Client) Accounts(ctx context.Context) (Accounts, error) {
	return send[Accounts](ctx, c, "/accounts/list", none{})
}

// DisableAccount disables an account, whose holder is told the reason, and stops its stacks if
// stop is set.
func (c *Client) DisableAccount(ctx context.Context, address, reason string, stop bool) (Stopped, error) {
	return send[Stopped](ctx, c, "/accounts/disable", disabling{address, reason, stop})
}

// EnableAccount ends what DisableAccount did to the account. Its stacks stay as they are.
func (c *Client) EnableAccount(ctx context.Context, address string) error {
	_, err := send[none](ctx, c, "/accounts/enable", email{address})
	return err
}

// Ban bans a client network, for a duration as in 24h, or for ever for "".
func (c *Client) Ban(ctx context.Context, net, lasts string) (Ban, error) {
	return send[Ban](ctx, c, "/bans/add", banning{net, lasts})
}

// Unban ends the ban of a network.
func (c *Client) Unban(ctx context.Context, net string) error {
	_, err := send[none](ctx, c, "/bans/remove", network{net})
	return err
}

// Bans returns the bans that have not ended.
func (c *Client) Bans(ctx context.Context) (BanList, error) {
	return send[BanList](ctx, c, "/bans/list", none{})
}

// Audit returns the last commands that this or another server was given, at most n.
func (c *Client) Audit(ctx context.Context, n int) (Entries, error) {
	return send[Entries](ctx, c, "/audit", limit{n})
}
