package client

import (
	"context"
	"net/http"
	"net/url"
)

// Domain is an owner's host that leads to a service (docs/api.md, "Domains").
type Domain struct {
	Host             string         `json:"host"`
	Service          string         `json:"service"`
	Status           string         `json:"status"` // pending, active or lost
	Reason           *string        `json:"reason"`
	Primary          bool           `json:"primary"`
	Records          []DomainRecord `json:"records"`
	CheckedAt        *float64       `json:"checked_at"`        // Unix seconds
	CertificateUntil *float64       `json:"certificate_until"` // Unix seconds
}

// DomainRecord is what the owner of a domain enters at the DNS.
type DomainRecord struct {
	Type  string `json:"type"`
	Name  string `json:"name"`
	Value string `json:"value"`
}

func domainsPath(id string) string { return stackPath(id) + "/domains" }

// Domains returns the domains of a stack.
func (c *Client) Domains(ctx context.Context, id string) ([]Domain, error) {
	list, err := call[struct {
		Domains []Domain `json:"domains"`
	}](ctx, c, http.MethodGet, domainsPath(id), nil, nil)
	if err != nil {
		return nil, err
	}
	return list.Domains, nil
}

// AddDomain adds a domain that leads to a service.
func (c *Client) AddDomain(ctx context.Context, id, host, service string) (*Domain, error) {
	return call[Domain](ctx, c, http.MethodPost, domainsPath(id), nil, map[string]string{"host": host, "service": service})
}

// RemoveDomain removes a domain.
func (c *Client) RemoveDomain(ctx context.Context, id, host string) error {
	body, err := c.open(ctx, http.MethodDelete, domainsPath(id)+"/"+url.PathEscape(host), nil)
	if err != nil {
		return err
	}
	return body.Close()
}
