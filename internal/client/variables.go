package client

import (
	"context"
	"net/http"
)

// Variable is a variable of a stack, without its value (docs/api.md, "GET
// /v0/stacks/{id}/env").
type Variable struct {
	Service   *string  `json:"service"` // nil for all
	Name      string   `json:"name"`
	From      string   `json:"from"`       // manifest, set or generated
	ChangedAt *float64 `json:"changed_at"` // Unix seconds; nil if that was not recorded
}

// EnvChange is a change of the variables outside the manifest (docs/api.md, "PATCH
// /v0/stacks/{id}/env"). A nil value unsets a variable.
type EnvChange struct {
	Services map[string]map[string]*string `json:"services,omitempty"`
	All      map[string]*string            `json:"all,omitempty"`
	Build    bool                          `json:"build"`
}

// NewEnvChange returns a change of the variables of a service, "" for all.
func NewEnvChange(service string, values map[string]*string, build bool) EnvChange {
	if service == "" {
		return EnvChange{All: values, Build: build}
	}
	return EnvChange{Services: map[string]map[string]*string{service: values}, Build: build}
}

// Env returns the variables that a stack's services are given.
func (c *Client) Env(ctx context.Context, id string) ([]Variable, error) {
	list, err := call[struct {
		Variables []Variable `json:"variables"`
	}](ctx, c, http.MethodGet, stackPath(id)+"/env", nil, nil)
	if err != nil {
		return nil, err
	}
	return list.Variables, nil
}

// SetEnv changes variables of a stack, which starts its next generation unless nothing
// changes.
func (c *Client) SetEnv(ctx context.Context, id string, change EnvChange) (*Stack, error) {
	return call[Stack](ctx, c, http.MethodPatch, stackPath(id)+"/env", nil, change)
}
