package peer

import (
	"crypto/tls"
	"crypto/x509"
)

// State is what is known of a node.
type State int

// The states of a node.
const (
	Ready State = iota
	Away        // its lease is over; it may still answer
	Lost        // others may have its stacks: nothing is asked of it
)

// Nodes is who belongs to the cluster; package cluster knows. All answers come from
// memory.
type Nodes interface {
	// Self returns the id of this node.
	Self() string
	// Member reports whether a node belongs to the cluster at this moment.
	Member(node string) bool
	// Address returns host:port of a node's listener for nodes, "" if it is not known.
	Address(node string) (addr string, state State)
	// Name returns the name of a node for people, its id if it has none.
	Name(node string) string
	// Manager reports whether this node is a manager of the cluster.
	Manager() bool
}

// Certificates are how nodes know each other. The common name of a certificate is the
// id of its node. They are asked for with every handshake, since certificates are
// replaced while the server runs.
type Certificates interface {
	Certificate() (*tls.Certificate, error)
	Roots() (*x509.CertPool, error)
}
