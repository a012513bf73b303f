package admission

import "io"

// RoomWriter returns a writer to w that fails once the disks have no room.
func (g *Gate) RoomWriter(w io.Writer) io.Writer { return &roomWriter{to: w, check: g.CheckRoom} }

type roomWriter struct {
	to    io.Writer
	check func() error
	next  int64 // bytes until the next look
}

// roomLook is how many bytes are written between looks at the disk.
const roomLook = 64 << 20

func (w *roomWriter) Write(p []byte) (int, error) {
	if w.next -= int64(len(p)); w.next < 0 {
		if err := w.check(); err != nil {
			return 0, err
		}
		w.next = roomLook
	}
	return w.to.Write(p)
}
