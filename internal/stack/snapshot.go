package stack

import "time"

// Snapshot is a copy of the data of a live stack, with which another node may begin if the
// stack's own is lost. It is kept apart from the node.
type Snapshot struct {
	At       time.Time `json:"at,omitzero"`         // when the copying began; zero for none
	Attempt  int       `json:"attempt,omitempty"`   // whose result was served
	Services []string  `json:"services,omitempty"`  // that had data volumes, sorted
	State    string    `json:"state,omitempty"`     // digest of what the data was like; "" if not known
	Bytes    int64     `json:"bytes,omitempty"`     // in all
	InMotion bool      `json:"in_motion,omitempty"` // the stack ran meanwhile: files may be of different moments
}

// HasSnapshot reports whether another node can begin with the stack's last snapshot: it is of
// the generation that is served, so that the program knows the data.
func (s *Stack) HasSnapshot() bool {
	return s.Status == Live && !s.Snapshot.At.IsZero() && s.Snapshot.Attempt == s.Generation.Attempt
}
