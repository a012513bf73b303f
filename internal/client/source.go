package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
)

// Source lists the kept source of a stack (docs/api.md, "GET /v0/stacks/{id}/source").
type Source struct {
	Generation int          `json:"generation"`
	Digest     string       `json:"digest"`
	Files      []SourceFile `json:"files"`
}

// SourceFile is a file of a source, or a symlink, which has a target.
type SourceFile struct {
	Path   string `json:"path"`
	Size   int64  `json:"size"`
	Mode   string `json:"mode"`
	SHA256 string `json:"sha256"`
	Target string `json:"target"`
}

// sourcePath returns the path of a file or folder of a stack's source; "" is all of it.
func sourcePath(id, name string) string {
	path := stackPath(id) + "/source"
	for part := range strings.SplitSeq(name, "/") {
		switch part {
		case "":
		case "..": // it would lead to another endpoint
			path += "/%2E%2E"
		default:
			path += "/" + url.PathEscape(part)
		}
	}
	return path
}

// Source lists the source of a stack.
func (c *Client) Source(ctx context.Context, id string) (*Source, error) {
	req, err := c.request(ctx, http.MethodGet, sourcePath(id, ""), nil, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	return exchange[Source](c, req)
}

// SourceDigest returns the digest of a stack's source.
func (c *Client) SourceDigest(ctx context.Context, id string) (string, error) {
	req, err := c.request(ctx, http.MethodHead, sourcePath(id, ""), nil, nil)
	if err != nil {
		return "", err
	}
	req.Header.Set("Accept", "application/json")
	res, err := c.send(req)
	if err != nil {
		return "", err
	}
	return digestOf(res), res.Body.Close()
}

// digestOf returns the digest in an answer; "" for none.
func digestOf(res *http.Response) string {
	return strings.Trim(strings.TrimPrefix(res.Header.Get("ETag"), "W/"), `"`)
}

// SourceArchive returns the source of a stack as a tar.gz; the caller closes it.
func (c *Client) SourceArchive(ctx context.Context, id string) (io.ReadCloser, error) {
	return c.open(ctx, http.MethodGet, sourcePath(id, ""), nil)
}

// SourceFile returns at most most bytes of a file of a stack's source, and whether it is
// text. For a folder it returns a listing instead.
func (c *Client) SourceFile(ctx context.Context, id, name string, most int64) (content []byte, text bool, folder *Source, err error) {
	req, err := c.request(ctx, http.MethodGet, sourcePath(id, name), nil, nil)
	if err != nil {
		return nil, false, nil, err
	}
	res, err := c.send(req)
	if err != nil {
		return nil, false, nil, err
	}
	defer res.Body.Close()
	kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if kind == "application/json" {
		most = mostBody
	}
	if content, err = io.ReadAll(io.LimitReader(res.Body, most)); err != nil {
		return nil, false, nil, &Unreachable{Server: c.Server(), Err: err}
	}
	if kind != "application/json" {
		return content, kind == "text/plain", nil, nil
	}
	if err := json.Unmarshal(content, &folder); err != nil {
		return nil, false, nil, fmt.Errorf("read the listing of %s: %w", name, err)
	}
	return nil, false, folder, nil
}
