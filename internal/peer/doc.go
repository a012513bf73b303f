// Package peer is the way from one node of a cluster to another, in both directions.
//
// Pool has the connections to the other nodes: requests for their stacks are forwarded
// over them as they come (package proxy), and calls between nodes are made over them.
// Gate stands at the listener for nodes: it believes a certificate whose node belongs to
// the cluster at that moment, tells calls from forwarded requests, and reads what the
// forwarding node says of the caller. Table knows the node of each stack, and keeps the
// routes of other nodes' stacks. Forwarder decides which node answers a request for the
// API or a page, by the table in routes.go.
//
// Everything of the cluster that this package needs comes through Nodes and Owners. Code
// in this package touches connections and the heads of requests. It changes no row and
// knows no engine.
package peer
