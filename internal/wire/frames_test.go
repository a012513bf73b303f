package wire

import (
	"slices"
	"testing"
)

func TestFrames_KnowsWhereFramesEnd(t *testing.T) {
	short := []byte{0x81, 0x85, 1, 2, 3, 4, 'h', 'e', 'l', 'l', 'o'}
	medium := append([]byte{0x82, 126, 1, 0}, make([]byte, 256)...)
	large := append([]byte{0x82, 127, 0, 0, 0, 0, 0, 1, 0, 0}, make([]byte, 1<<16)...)
	stream := slices.Concat(short, medium, []byte{0x89, 0}, large, short)
	ends := map[int]bool{0: true}
	at := 0
	for _, f := range [][]byte{short, medium, {0x89, 0}, large, short} {
		at += len(f)
		ends[at] = true
	}
	for _, step := range []int{1, 3, 7, 4096, len(stream)} {
		var f Frames
		for i := 0; i < len(stream); i += step {
			end := min(i+step, len(stream))
			f.Advance(stream[i:end])
			if f.Between() != ends[end] {
				t.Fatalf("step %d: at byte %d between is %t", step, end, f.Between())
			}
		}
	}
}
