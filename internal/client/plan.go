package client

import "context"

// Plan is what a create of a source would build and run (POST /v0/validate).
type Plan struct {
	Valid    bool      `json:"valid"`
	Faults   []string  `json:"faults"` // each says what to change; none when valid
	Name     string    `json:"name"`
	TTL      *float64  `json:"ttl"` // seconds; null when nothing says
	Services []Planned `json:"services"`
}

// Planned is the plan of one service. A field that does not apply is empty.
type Planned struct {
	Name        string   `json:"name"`
	Runtime     string   `json:"runtime"`
	Version     string   `json:"version,omitempty"`
	BuiltWith   string   `json:"built_with,omitempty"` // of a static service that is built
	Root        string   `json:"root"`
	Install     string   `json:"install,omitempty"`
	Build       string   `json:"build,omitempty"`
	Release     string   `json:"release,omitempty"`
	Start       string   `json:"start,omitempty"`
	Port        int      `json:"port,omitempty"`
	Health      string   `json:"health,omitempty"`
	Env         []string `json:"env,omitempty"` // names
	DependsOn   []string `json:"depends_on,omitempty"`
	Strategy    string   `json:"strategy,omitempty"`
	StopTimeout float64  `json:"stop_timeout,omitempty"` // seconds
	Publish     string   `json:"publish,omitempty"`
	SPA         string   `json:"spa,omitempty"`

	From map[string]string `json:"from"` // field to where its value came from
}

// Validate asks what a create would make of a source; nothing is built. What is
// wrong with the source is in the plan, not an error. A server from before this
// route answers 404 or 405.
func (c *Client) Validate(ctx context.Context, u Upload) (*Plan, error) {
	p := &Plan{}
	if err := c.upload(ctx, "/v0/validate", u, p); err != nil {
		return nil, err
	}
	return p, nil
}
