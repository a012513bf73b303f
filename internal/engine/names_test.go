package engine

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// Objects made by an earlier version are found by these names and labels.
func TestKey_NamesStay(t *testing.T) {
	web := Key{Stack: "stk_3f2a9c1b7d4e", Service: "web", Generation: 2}
	for got, want := range map[string]string{
		web.Process(0):         "berth-3f2a9c1b7d4e-web-g2",
		web.Process(1):         "berth-3f2a9c1b7d4e-web-g2-r1",
		web.Release():          "berth-3f2a9c1b7d4e-web-g2-release",
		web.Build():            "berth-build-3f2a9c1b7d4e-web",
		web.SnapshotCopy():     "berth-3f2a9c1b7d4e-web-snapshot",
		web.RestoreCopy():      "berth-3f2a9c1b7d4e-web-restore",
		web.Probe():            "berth-3f2a9c1b7d4e-try",
		web.Hostname():         "web-g2",
		web.Image(2):           "berth/3f2a9c1b7d4e-web:g2",
		web.Layer(7):           "berth/3f2a9c1b7d4e-web:i7",
		web.SourceLayer(7):     "berth/3f2a9c1b7d4e-web:s7",
		web.SourceCopy():       "berth-source-3f2a9c1b7d4e-web",
		web.Install():          "berth-install-3f2a9c1b7d4e-web",
		web.Snapshot():         "berth/3f2a9c1b7d4e-web:data",
		web.Restored():         "berth/3f2a9c1b7d4e-web:restored",
		web.Data():             "berth-3f2a9c1b7d4e-web-data",
		web.Cache(0):           "berth-3f2a9c1b7d4e-web-cache",
		web.Cache(1):           "berth-3f2a9c1b7d4e-web-cache-1",
		web.CacheTrim():        "berth-3f2a9c1b7d4e-web-trim",
		web.Network():          "berth-3f2a9c1b7d4e-g2",
		web.Builds().Network(): "berth-3f2a9c1b7d4e-g2-build",
		web.FormerNetwork():    "berth-3f2a9c1b7d4e",
		web.FormerBridge():     "bth3f2a9c1b7d4e",

		BaseImage("go", "1.26", "0123456789abcdef"): "berth/base-go:1.26-0123456789ab",
	} {
		assert.Equal(t, want, got)
	}
	assert.Equal(t, Labels{
		"berth.instance": "i", "berth.stack": "stk_3f2a9c1b7d4e", "berth.service": "web", "berth.generation": "2",
	}, web.Labels("i"))
	assert.Equal(t, Labels{"berth.instance": "i"}, Key{}.Labels("i"))
	assert.Equal(t, Labels{"berth.instance": "shared"}, SharedLabels())
}

func TestKeyOf_IsTheWayBack(t *testing.T) {
	for _, key := range []Key{
		{},
		{Stack: "stk_3f2a9c1b7d4e"},
		{Stack: "stk_3f2a9c1b7d4e", Service: "web"},
		{Stack: "stk_3f2a9c1b7d4e", Service: "web", Generation: 12},
	} {
		assert.Equal(t, key, KeyOf(key.Labels("i")))
	}
}

func TestAttemptOf_ReadsTheReferencesOfBuildsAlone(t *testing.T) {
	key := Key{Stack: "stk_3f2a9c1b7d4e", Service: "web", Generation: 12}
	for _, ref := range []string{key.Image(12), key.Layer(12), key.SourceLayer(12)} {
		number, ok := AttemptOf(ref)
		assert.True(t, ok, ref)
		assert.Equal(t, 12, number, ref)
	}
	for _, ref := range []string{key.Snapshot(), key.Restored(), "berth/base-go:1.24-abc", "sha256:1234"} {
		_, ok := AttemptOf(ref)
		assert.False(t, ok, ref)
		assert.Equal(t, ref == key.Restored(), IsRestored(ref), ref)
		assert.False(t, IsRemote(ref), ref)
	}
	for _, ref := range []string{"registry:5000/stk_3f2a9c1b7d4e:web-g12", "registry.example.com/berth/stk_3f2a9c1b7d4e:web-g12", "localhost/a:b"} {
		assert.True(t, IsRemote(ref), ref)
	}
}

func TestBridge_IsAnInterfaceOfOneGenerationAlone(t *testing.T) {
	const longest = 15 // characters of an interface's name on Linux
	seen := map[string]bool{Key{Stack: "stk_3f2a9c1b7d4e"}.FormerBridge(): true}
	for _, instance := range []string{"0123456789abcdef", "fedcba9876543210"} {
		for _, number := range []int64{1, 11, 4096, 46_655} {
			for _, generation := range []int{1, 2, 11, 1000} {
				// Another database of the installation counts from 1 as well.
				for _, id := range []string{"stk_3f2a9c1b7d4e", "stk_4e7d1b9c2a3f"} {
					key := Key{Stack: id, Generation: generation}
					for _, key := range []Key{key, key.Builds()} {
						name := key.Bridge(instance, number)
						assert.True(t, strings.HasPrefix(name, BridgePrefix), name)
						assert.Equal(t, key.Building, strings.HasPrefix(name, BuildBridgePrefix), name)
						assert.LessOrEqual(t, len(name), longest, name)
						assert.False(t, seen[name], "%s of %s, generation %d", name, id, generation)
						seen[name] = true
					}
				}
			}
		}
		assert.Len(t, Key{Generation: math.MaxInt32}.Bridge(instance, math.MaxInt32), longest)
	}
}
