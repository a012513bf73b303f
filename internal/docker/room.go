package docker

import (
	"context"
	"fmt"
	"sync"

	"github.com/docker/docker/api/types/container"

	"github.com/berth-host/berth/internal/engine"
)

// promises is the room on the engine's disk that is promised to images which are being made,
// so that several at once do not count on the same. It is in memory: nobody writes any more
// what a server that died has promised. Its methods may be called by several goroutines at
// once.
type promises struct {
	mu    sync.Mutex
	bytes int64
}

// promise promises an image the bytes that it needs of those that free returns, unless they are
// promised to others: the error is a *engine.NoRoomError then. The caller calls done once, when
// the image is made or given up; until then, what has been written of it counts twice.
func (p *promises) promise(need int64, free func() (int64, error)) (done func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	// Asked under the lock, so that no promise ends between this and the sum.
	left, err := free()
	if err != nil {
		return nil, err
	}
	if room := left - p.bytes; need > room {
		return nil, &engine.NoRoomError{Need: need, Room: room}
	}
	p.bytes += need
	return func() { p.end(need) }, nil
}

func (p *promises) end(bytes int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bytes -= bytes
}

// reserve reserves the room that an image of a container takes, so that floor bytes stay free:
// the lengths of all files that the container's own image does not have, holes included, those
// with several names once. The engine adds them up, which nothing in the container can keep it
// from.
func (d *Driver) reserve(ctx context.Context, id string, floor int64) (done func(), err error) {
	found, err := retryGet(ctx, func() (container.InspectResponse, error) {
		found, _, err := d.api.ContainerInspectWithRaw(ctx, id, true)
		return found, err
	}, "measure container %s", id)
	if err != nil {
		return nil, err
	}
	need := int64(0)
	if found.ContainerJSONBase != nil && found.SizeRw != nil {
		need = *found.SizeRw
	}
	return d.room.promise(need, func() (int64, error) {
		free, err := d.Room()
		return free.Bytes - floor, err
	})
}

// reserveCopy lets a helper measure, and reserves the room that its copy of a volume takes,
// and the image of that, so that floor bytes stay free.
func (d *Driver) reserveCopy(ctx context.Context, id string, floor int64) (done func(), err error) {
	printed, err := d.runHelper(ctx, id)
	if err != nil {
		return nil, err
	}
	var taken, full, left int64
	if _, err := fmt.Sscan(printed, &taken, &full, &left); err != nil {
		return nil, fmt.Errorf("docker: the helper printed no sizes: %w", err)
	}
	need := (min(taken, maxMiB) + min(full, maxMiB)) << 20
	return d.room.promise(need, func() (int64, error) {
		now, err := d.Room() // Endless on another machine; others may have written since the helper looked
		return min(now.Bytes, left<<20) - floor, err
	})
}

// maxMiB is more than any disk has, in MiB; twice as many bytes still fit an int64.
const maxMiB = 1 << 40
