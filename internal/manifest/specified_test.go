package manifest

import (
	"fmt"
	"slices"
	"testing"
)

// The specification's messages and its names of other hosts are held letter for letter
// (docs/manifest.md, "The manifest").
func TestResolve_SaysLetterForLetterWhatIsSpecified(t *testing.T) {
	for fields, want := range map[string]string{
		"runtime: static, start: x":  "service web: a static service must not have a start command",
		"buildCommand: x":            `service web: unknown field "buildCommand"; here it is "build"`,
		"startCommand: x":            `service web: unknown field "startCommand"; here it is "start"`,
		"healthCheckPath: x":         `service web: unknown field "healthCheckPath"; here it is "health"`,
		"staticPublishPath: x":       `service web: unknown field "staticPublishPath"; here it is "publish"`,
		"rootDir: x":                 `service web: unknown field "rootDir"; here it is "root"`,
		"envVars: x":                 `service web: unknown field "envVars"; here it is "env"`,
		"releaseCommand: x":          `service web: unknown field "releaseCommand"; here it is "release"`,
		"internal_port: x":           `service web: unknown field "internal_port"; here it is "port"`,
		"environment: x":             `service web: unknown field "environment"; here it is "env"`,
		"runtime: cobol":             `service web: unknown runtime "cobol"; there are bun, deno, go, java, node, php, postgres, python, ruby, rust, static, valkey`,
		"runtime: node@20, start: x": `service web: node has no version "20" here; it has 22, 24`,
	} {
		if got := faultsOf(t, fmt.Sprintf("services: [{name: web, %s}]", fields)); !slices.Equal(got, []string{want}) {
			t.Errorf("%s:\n%q, want\n%q", fields, got, want)
		}
	}
}
