package api

import (
	"github.com/berth-host/berth/internal/stack"
)

// stackView is the stack object of docs/api.md, "The stack", with what some
// responses add to it.
type stackView struct {
	ID            string            `json:"id"`
	Name          string            `json:"name"`
	Status        stack.Status      `json:"status"`
	Claimed       bool              `json:"claimed"`
	URLs          map[string]string `json:"urls"`
	Services      []serviceView     `json:"services"`
	CreatedAt     stack.Timestamp   `json:"created_at"`
	ExpiresAt     stack.Timestamp   `json:"expires_at"`
	ExpiredAt     stack.Timestamp   `json:"expired_at"`
	RetainedUntil stack.Timestamp   `json:"retained_until"`
	Generation    int               `json:"generation"`
	Deploying     *int              `json:"deploying"`
	Error         *string           `json:"error"`
	DeployError   *string           `json:"deploy_error"`
	Deploy        *deployView       `json:"deploy"`

	Role string `json:"role,omitempty"`
}

type serviceView struct {
	Name    string              `json:"name"`
	Runtime string              `json:"runtime"`
	Status  stack.ServiceStatus `json:"status"`
	URL     string              `json:"url"`
}

// deployView is the deploy of docs/api.md, "The deploy".
type deployView struct {
	Generation int             `json:"generation"`
	Attempt    int             `json:"attempt"`
	Outcome    stack.Outcome   `json:"outcome"`
	Phase      *stack.Phase    `json:"phase"`
	Service    *string         `json:"service"`
	Problem    *string         `json:"problem"`
	Error      *string         `json:"error"`
	StartedAt  stack.Timestamp `json:"started_at"`
	EndedAt    stack.Timestamp `json:"ended_at"`
}

// oneTime holds the fields that are shown once, after those of the stack, and as a
// receipt records them.
type oneTime struct {
	ManageToken   string `json:"manage_token,omitempty"`
	ClaimCode     string `json:"claim_code,omitempty"`
	ClaimURL      string `json:"claim_url,omitempty"`
	Note          string `json:"note,omitempty"`
	WebhookSecret string `json:"webhook_secret,omitempty"`
}

// view returns the stack as the API shows it.
func (a *API) view(s *stack.Stack) stackView {
	v := stackView{
		ID:            s.ID,
		Name:          s.Name,
		Status:        s.Status,
		Claimed:       s.Claimed(),
		URLs:          a.cfg.URLs.All(s),
		Services:      make([]serviceView, len(s.Generation.Services)),
		CreatedAt:     stack.Timestamp(s.CreatedAt),
		ExpiresAt:     stack.Timestamp(s.ExpiresAt),
		ExpiredAt:     stack.Timestamp(s.ExpiredAt),
		RetainedUntil: stack.Timestamp(s.RetainedUntil),
		Generation:    s.Generation.Number,
		Deploying:     orNull(s.Deploying),
		Error:         orNull(s.Error),
		DeployError:   orNull(s.DeployError),
		Deploy:        viewDeploy(s.LastDeploy),
	}
	waits := a.cfg.Lost != nil && s.Status == stack.Live && a.cfg.Lost(s.Node)
	for i, svc := range s.Generation.Services {
		if waits {
			svc.Status = stack.Stopped
		}
		v.Services[i] = serviceView{Name: svc.Spec.Name, Runtime: svc.Spec.Label, Status: svc.Status, URL: v.URLs[svc.Spec.Name]}
	}
	return v
}

// viewDeploy returns a deploy as the API shows it; nil for one of an earlier version.
func viewDeploy(d stack.Deploy) *deployView {
	if d.Attempt == 0 {
		return nil
	}
	return &deployView{
		Generation: d.Generation,
		Attempt:    d.Attempt,
		Outcome:    d.Outcome,
		Phase:      orNull(d.Progress.Phase),
		Service:    orNull(d.Progress.Service),
		Problem:    orNull(d.Progress.Problem),
		Error:      orNull(d.Error),
		StartedAt:  stack.Timestamp(d.StartedAt),
		EndedAt:    stack.Timestamp(d.EndedAt),
	}
}

// orNull returns nil, which is null in JSON, for a zero value.
func orNull[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}
