package hostfault

import (
	"errors"
	"io/fs"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestIs_KnowsWhatSaysNothingAboutTheFile(t *testing.T) {
	for _, fault := range append(scarce, away...) {
		assert.True(t, Is(&fs.PathError{Op: "open", Path: "p", Err: fault}), "%v", fault)
	}
	for _, err := range []error{nil, syscall.ENOENT, syscall.ENOTDIR, syscall.ELOOP, syscall.EACCES, errors.New("broken")} {
		assert.False(t, Is(err), "%v", err)
	}
}

func TestNoDescriptor_KnowsBothLimits(t *testing.T) {
	for err, want := range map[error]bool{
		&fs.PathError{Op: "open", Path: "p", Err: syscall.EMFILE}: true, syscall.ENFILE: true, syscall.ENOMEM: false, NoSpace: false,
	} {
		assert.Equal(t, want, NoDescriptor(err), "%v", err)
	}
	assert.False(t, NoDescriptor(nil))
}

func TestIn_FindsAFaultInAnothersWords(t *testing.T) {
	assert.True(t, In("mkdir /var/lib/docker/x: no space left on device"))
	assert.True(t, In("fork/exec: resource temporarily unavailable"))
	assert.False(t, In(`exec: "server": permission denied`))
	assert.False(t, In("dial tcp 192.0.2.1:443: connection timed out"), "a registry is not the machine")
}
