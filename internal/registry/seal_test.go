package registry

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"slices"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const sealedName = "stk_3f2a9c1b7d4e/data-web-1"

// sealed returns what seal makes of a text.
func sealed(t testing.TB, key, text []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := seal(&out, key, sealedName)
	require.NoError(t, err)
	_, err = w.Write(text)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return out.Bytes()
}

func randomText(n int) []byte {
	text := make([]byte, n)
	rand.Read(text)
	return text
}

func TestSeal_OpensToWhatWasSealed(t *testing.T) {
	key := NewKey()
	for _, n := range []int{0, 1, chunkBytes - 1, chunkBytes, chunkBytes + 1, 3 * chunkBytes, 3*chunkBytes + 7} {
		text := randomText(n)
		stream := sealed(t, key, text)
		if n > 20 {
			assert.NotContains(t, string(stream), string(text[:20]))
		}
		got, err := io.ReadAll(open(bytes.NewReader(stream), key, sealedName))
		require.NoError(t, err, n)
		require.Equal(t, len(text), len(got))
		require.True(t, bytes.Equal(text, got))
		got, err = io.ReadAll(open(iotest.OneByteReader(bytes.NewReader(stream)), key, sealedName))
		require.NoError(t, err, n)
		require.True(t, bytes.Equal(text, got))
	}
}

func TestSeal_NoticesEveryChange(t *testing.T) {
	key := NewKey()
	const chunk = chunkBytes + tagBytes
	whole := sealed(t, key, randomText(3*chunkBytes))
	for name, stream := range map[string][]byte{
		"nothing":             nil,
		"half a salt":         whole[:10],
		"only a salt":         whole[:saltBytes],
		"cut after a chunk":   whole[:saltBytes+chunk],
		"cut after two":       whole[:saltBytes+2*chunk],
		"cut in a chunk":      whole[:saltBytes+chunk+99],
		"without a byte":      whole[:len(whole)-1],
		"a byte more":         append(slices.Clone(whole), 0),
		"a chunk twice":       slices.Concat(whole[:saltBytes+chunk], whole[saltBytes:]),
		"a chunk left out":    slices.Concat(whole[:saltBytes], whole[saltBytes+chunk:]),
		"in another order":    slices.Concat(whole[:saltBytes], whole[saltBytes+chunk:saltBytes+2*chunk], whole[saltBytes:saltBytes+chunk], whole[saltBytes+2*chunk:]),
		"of another stream":   slices.Concat(whole[:saltBytes], sealed(t, key, randomText(3*chunkBytes))[saltBytes:]),
		"with a changed salt": slices.Concat([]byte{whole[0] ^ 1}, whole[1:]),
		"with a changed byte": slices.Concat(whole[:99], []byte{whole[99] ^ 1}, whole[100:]),
	} {
		_, err := io.ReadAll(open(bytes.NewReader(stream), key, sealedName))
		require.ErrorIs(t, err, errSealed, name)
	}
	_, err := io.ReadAll(open(bytes.NewReader(whole), NewKey(), sealedName))
	require.ErrorIs(t, err, errSealed, "the key of another stack")
	_, err = io.ReadAll(open(bytes.NewReader(whole), key, "stk_000000000000/data-web-1"))
	require.ErrorIs(t, err, errSealed, "under another name")
	_, err = io.ReadAll(open(bytes.NewReader(whole), nil, sealedName))
	require.ErrorContains(t, err, "32 bytes")
	broken := errors.New("the connection broke")
	_, err = io.ReadAll(open(io.MultiReader(bytes.NewReader(whole[:saltBytes+chunk]), iotest.ErrReader(broken)), key, sealedName))
	require.ErrorIs(t, err, broken)
}

func BenchmarkSeal(b *testing.B) {
	text, key := randomText(8<<20), NewKey()
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		stream := sealed(b, key, text)
		if _, err := io.Copy(io.Discard, open(bytes.NewReader(stream), key, sealedName)); err != nil {
			b.Fatal(err)
		}
	}
}
