package engine

import (
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// Signal returns the name of the signal that ended the process of a container, as in
// SIGSEGV, according to the exit code. The name is "" for a signal without one; ok is
// false for a process that no signal ended.
func (c Container) Signal() (name string, ok bool) {
	const base, last = 128, 64 // of the exit codes, and the highest number that Linux has
	number := c.ExitCode - base
	if number < 1 || number > last {
		return "", false
	}
	return unix.SignalName(syscall.Signal(number)), true
}

// IsEmpty reports whether there are no objects.
func (o Objects) IsEmpty() bool {
	return len(o.Containers)+len(o.Images)+len(o.Volumes)+len(o.Networks) == 0
}

// Names returns the names by which an operator finds the objects.
func (o Objects) Names() []string {
	var names []string
	for _, c := range o.Containers {
		names = append(names, c.Name)
	}
	for _, v := range o.Volumes {
		names = append(names, v.Name)
	}
	for _, image := range o.Images {
		if len(image.Tags) == 0 {
			names = append(names, image.ID)
		}
		names = append(names, image.Tags...)
	}
	for _, n := range o.Networks {
		names = append(names, n.Name)
	}
	return names
}

// Container returns a container by name; the zero Container when there is none.
func (o Objects) Container(name string) Container {
	for _, c := range o.Containers {
		if c.Name == name {
			return c
		}
	}
	return Container{}
}

// HasNetwork reports whether there is a network of a name.
func (o Objects) HasNetwork(name string) bool {
	return slices.ContainsFunc(o.Networks, func(n Network) bool { return n.Name == name })
}

// Data separates the objects with data, volumes and snapshots, from the rest. A snapshot is
// an image that no build made.
func (o Objects) Data() (data, rest Objects) {
	data.Volumes = o.Volumes
	rest = Objects{Containers: o.Containers, Networks: o.Networks}
	for _, image := range o.Images {
		if image.Key.Generation == 0 {
			data.Images = append(data.Images, image)
		} else {
			rest.Images = append(rest.Images, image)
		}
	}
	return data, rest
}
