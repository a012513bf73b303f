package source

import "github.com/berth-host/berth/internal/stack"

// Upload is what a request deploys.
type Upload struct {
	Source        *Source // just saved; its folder is moved away
	Manifest      *stack.Manifest
	WebhookSecret string // used if the stack gets its first webhook
	Supersede     bool   // ends the deploy that is under way
	Fresh         bool   // built without anything that earlier builds left
	Over          string // digest of the source that the stack must still have; "" for any
}

// CheckOver returns why the upload can no longer be deployed: the stack has another source
// than the one that it is for.
func (u Upload) CheckOver(s *stack.Stack) error {
	if u.Over == "" {
		return nil
	}
	return s.CheckDigest(u.Over)
}
