//go:build race

package edge

// raceCost is by how much more memory the race detector takes for a connection.
const raceCost = 2
