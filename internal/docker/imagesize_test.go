package docker

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAddSizes_CountsWhatImagesHaveInCommonOnce(t *testing.T) {
	t.Parallel()
	image := func(layers string, size int64) layered { return layered{layers: strings.Fields(layers), size: size} }
	bases := []layered{image("debian", 80), image("debian node", 300), image("debian go", 500)}
	for _, c := range []struct {
		images []layered
		want   int64
	}{
		{nil, 0},
		{[]layered{image("debian node", 300)}, 0},
		{[]layered{image("debian node app", 310)}, 10},
		// A layer of dependencies, and two images on top of it.
		{[]layered{image("debian node deps app", 360), image("debian node deps", 350), image("debian node deps other", 351)}, 61},
		// Two names of one image.
		{[]layered{image("debian go app", 520), image("debian go app", 520)}, 20},
		// A base image that is gone counts.
		{[]layered{image("alpine app", 9)}, 9},
	} {
		require.Equal(t, c.want, addSizes(c.images, bases), "%v", c.images)
	}
}
