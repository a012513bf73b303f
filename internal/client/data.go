package client

import (
	"context"
	"io"
	"net/http"
	"net/url"
)

func dataPath(id, service string) string {
	return stackPath(id) + "/services/" + url.PathEscape(service) + "/data"
}

// Data returns the data of a service as a tar.gz, or a database's dump; the caller closes it. If it breaks off,
// its reader returns an error. With stop, the service stops for that time.
func (c *Client) Data(ctx context.Context, id, service string, stop bool) (io.ReadCloser, error) {
	query := url.Values{}
	if stop {
		query.Set("stop", "true")
	}
	return c.open(ctx, http.MethodGet, dataPath(id, service), query)
}

// ReplaceData replaces the data of a service by a tar, tar.gz or dump of a size, -1 if that is not
// known, and returns the stack once it serves that.
func (c *Client) ReplaceData(ctx context.Context, id, service string, data io.Reader, size int64) (*Stack, error) {
	req, err := c.request(ctx, http.MethodPut, dataPath(id, service), nil, data)
	if err != nil {
		return nil, err
	}
	req.ContentLength = size
	req.Header.Set("Content-Type", "application/gzip")
	return exchange[Stack](c, req)
}
