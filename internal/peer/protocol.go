package peer

import "fmt"

// Protocol is the version of what nodes say to each other, in headers and in calls. While
// berthd is replaced node by node, some speak the version before. So the handshake of each
// connection finds the latest that both sides speak, and whoever asks speaks that.
const Protocol = 2

// streaming is the version from which on a connection carries streams (package streams),
// each of which is a connection of HTTP/1.1. Before it, it is one itself.
const streaming = 2

// Versions after the first have a name in the handshake; the first is HTTP.
const (
	protocolName  = "berth/%d"
	firstProtocol = "http/1.1"
)

// offered returns the names of all versions up to a latest, best first.
func offered(latest int) (names []string) {
	for version := latest; version > 1; version-- {
		names = append(names, fmt.Sprintf(protocolName, version))
	}
	return append(names, firstProtocol)
}

// agreed returns the version that a handshake ended with.
func agreed(name string) (version int) {
	if _, err := fmt.Sscanf(name, protocolName, &version); err != nil {
		return 1
	}
	return version
}
