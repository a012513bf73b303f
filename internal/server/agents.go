package server

import (
	"context"
	"fmt"
	"net"
	"net/http"

	"github.com/berth-host/berth/internal/client"
	"github.com/berth-host/berth/internal/docs"
	"github.com/berth-host/berth/internal/mcp"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/wire"
)

// openDocuments creates the server's documents about itself.
func (s *Server) openDocuments() (err error) {
	packages, err := s.cfg.packageHosts()
	if err != nil {
		return err
	}
	s.documents, err = docs.New(docs.Values{
		Base:            s.cfg.BaseURL,
		Limits:          s.cfg.Limits,
		MaxUpload:       s.cfg.MaxUpload,
		Wait:            s.cfg.Wait,
		CreatesPerHour:  s.cfg.CreatesPerHour,
		RefusedPerHour:  s.cfg.RefusedPerHour,
		ClaimsPerMinute: s.cfg.ClaimsPerMinute,
		Extensions:      extensionsPerMinute,
		Resources: docs.Resources{
			Memory:       s.cfg.ServiceMemory,
			BuildMemory:  s.cfg.BuildMemory,
			CPUs:         s.cfg.ServiceCPUs,
			Pids:         s.cfg.ServicePids,
			DiskFloor:    s.cfg.DiskFloor,
			StackDisk:    s.cfg.StackDisk,
			OpenHosts:    s.cfg.NetworkAllow,
			PackageHosts: packages,
		},
	})
	if err != nil {
		return fmt.Errorf("make the documents: %w", err)
	}
	return nil
}

// pathMCP is the path of the tools for agents.
const pathMCP = "/mcp"

// toolsOverHTTP returns the tools at /mcp. They call the API like any client, within
// this process, on behalf of the caller; toAPI is the API of this node.
func (s *Server) toolsOverHTTP(toAPI http.Handler) (http.Handler, error) {
	dial := s.toolsDial(toAPI)
	inner := &http.Transport{
		DialContext:       func(context.Context, string, string) (net.Conn, error) { return dial() },
		DisableKeepAlives: true, // a shutdown need not wait for idle connections
	}
	api, err := client.NewOver(&http.Client{Transport: inner}, "http://"+s.cfg.BaseURL.Host)
	if err != nil {
		return nil, fmt.Errorf("BERTH_BASE_URL: %w", err)
	}
	return mcp.Handler(mcp.Config{
		API:     api,
		Log:     s.log,
		Forward: wire.EdgeHeaders(),
	}, func(r *http.Request) string { return stack.NetworkOf(r.Header.Get(wire.HeaderCallerIP)) }), nil
}
