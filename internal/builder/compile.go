package builder

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/berth-host/berth/runtimes"
)

//go:embed compile.sh
var compileScript string

// compile returns what runs a build command with the caches of a definition, which lie in
// a folder. The caches count for a base image and an environment.
func compile(def *runtimes.Definition, folder, base string, env []string, command string) []string {
	digest := sha256.Sum256(fmt.Appendf(nil, "%q %q", base, env))
	caches := make([]string, len(def.Caches))
	for i, c := range def.Caches {
		caches[i] = c.Name + ":" + c.Folder + ":" + c.Beside
	}
	return []string{
		"sh", "-c", compileScript, "sh", hex.EncodeToString(digest[:]), folder,
		strings.Join(def.Marks, " "), strings.Join(caches, " "), command,
	}
}
