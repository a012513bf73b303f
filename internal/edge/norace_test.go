//go:build !race

package edge

const raceCost = 1
