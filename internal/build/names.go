package build

import (
	"strconv"

	"github.com/berth-host/berth/internal/stack"
)

// ImageRef is the reference of the image of a service's generation.
func ImageRef(s *stack.Stack, service string, generation int) string {
	return "berth/" + s.Hex() + "-" + service + ":g" + strconv.Itoa(generation)
}

// CacheVolume is the name of the volume with the package caches of one service.
func CacheVolume(s *stack.Stack, service string) string {
	return "berth-" + s.Hex() + "-" + service + "-cache"
}

// NetworkName is the name of the network of a stack's generation.
func NetworkName(s *stack.Stack, generation int) string {
	return "berth-" + s.Hex() + "-g" + strconv.Itoa(generation)
}

// The labels of Berth's objects in the engine.
const (
	LabelInstance   = "berth.instance"
	LabelStack      = "berth.stack"
	LabelService    = "berth.service"
	LabelGeneration = "berth.generation"
)

// sharedInstance is the LabelInstance of base images, which belong to no single
// installation: an operator who prunes what lacks the label keeps them.
const sharedInstance = "shared"
