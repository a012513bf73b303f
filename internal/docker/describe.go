package docker

import (
	"context"
	"strings"
	"time"

	"github.com/docker/docker/api/types/system"
)

// Description is what an engine says of itself to operators.
type Description struct {
	Version string // of the engine
	API     string // newest version of its API
	Time    time.Time
	Driver  string // of the storage
	// Filesystem is what the driver is on; "" if the driver does not say. NoFileType says
	// that it does not keep the types of files in folders.
	Filesystem string
	NoFileType bool
	Runc       string // version of runc; "" if the engine does not use it
}

// Describe returns what the engine says of itself to operators.
func (e *Engine) Describe(ctx context.Context) (Description, error) {
	version, err := e.api.ServerVersion(ctx)
	if err != nil {
		return Description{}, wrap(err, "ask for the engine's version")
	}
	info, err := e.api.Info(ctx)
	if err != nil {
		return Description{}, wrap(err, "describe engine")
	}
	d := Description{Version: version.Version, API: version.APIVersion, Driver: info.Driver}
	d.Time, _ = time.Parse(time.RFC3339Nano, info.SystemTime) // engines that do not say are left alone
	d.Filesystem, d.NoFileType = storage(info)
	for _, c := range version.Components {
		if c.Name == "runc" {
			d.Runc = c.Version
		}
	}
	return d, nil
}

// storage returns what the storage driver says of the file system that it is on.
func storage(info system.Info) (filesystem string, noFileType bool) {
	for _, pair := range info.DriverStatus {
		switch strings.ToLower(pair[0]) {
		case "backing filesystem":
			filesystem = pair[1]
		case "supports d_type":
			noFileType = pair[1] == "false"
		}
	}
	return filesystem, noFileType
}
