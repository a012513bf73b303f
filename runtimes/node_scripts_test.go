package runtimes

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
)

const (
	dependent = `package.json: {"dependencies": {"a": "1"}}`
	pnpmNine  = "pnpm-lock.yaml: lockfileVersion: '9.0'"
	yarnNine  = "yarn.lock: __metadata:\n  version: 9\n"
	yarnEight = "yarn.lock: __metadata:\n  version: 8\n"
)

// A package manager that runs some scripts alone says which; of the others only what they
// have installed shows it.
func TestInstallInputs_KnowWhichScriptsAreRun(t *testing.T) {
	workspace := func(settings string) fstest.MapFS {
		return files(dependent, pnpmNine, "pnpm-workspace.yaml: "+settings)
	}
	pnpm := func(fields string) fstest.MapFS {
		return files(`package.json: {"dependencies": {"a": "1"}, `+fields+`}`, pnpmNine)
	}
	for _, c := range []struct {
		src  fstest.MapFS
		env  string
		want string // "" if all are known, and read nothing
	}{
		{src: files(express, npmLock(""))},
		{src: files(express, npmLock(`, "node_modules/reads": {"hasInstallScript": true}`)), want: "reads has an install script"},
		{src: files(express), want: "unlisted"},
		{src: files(`package.json: {"dependencies": {"express": "4"}}`, npmLock("")), want: "unlisted"},
		{src: files(dependent, pnpmNine)},
		{src: pnpm(`"pnpm": {"onlyBuiltDependencies": ["esbuild", "sharp@0.34.1 || 0.34.2"]}`)},
		{src: pnpm(`"pnpm": {"onlyBuiltDependencies": ["@prisma/client"]}`), want: "@prisma/client has an install script"},
		{src: pnpm(`"pnpm": {"neverBuiltDependencies": []}`), want: "unlisted"},
		{src: pnpm(`"pnpm": {"onlyBuiltDependencies": "all"}`), want: "unlisted"},
		{src: pnpm(`"packageManager": "pnpm@10.4.1"`)},
		{src: pnpm(`"packageManager": "pnpm@9.15.0+sha512.0"`), want: "unlisted"},
		{src: workspace("packages: [a]\nonlyBuiltDependencies:\n  - esbuild # for vite\n\n  - '@parcel/watcher@2.5.1'\noverrides:\n  x: 1")},
		{src: workspace("onlyBuiltDependencies:\n- esbuild\n- reads\nnodeLinker: hoisted"), want: "reads has an install script"},
		{src: workspace("onlyBuiltDependencies: [esbuild, reads]"), want: "reads has an install script"},
		{src: workspace("allowBuilds:\n  esbuild: true\n  reads: false")},
		{src: workspace("allowBuilds:\n  '@x/reads@1': true"), want: "@x/reads has an install script"},
		{src: workspace("onlyBuiltDependencies: *shared"), want: "*shared has an install script"},
		{src: workspace("{onlyBuiltDependencies: [reads]}"), want: "unlisted"},
		{src: workspace("dangerouslyAllowAllBuilds: true"), want: "unlisted"},
		{src: files(dependent, pnpmNine, ".npmrc: dangerously-allow-all-builds=true"), want: "unlisted"},
		{src: files(dependent, pnpmNine), env: "npm_config_dangerously_allow_all_builds", want: "unlisted"},
		{src: files(dependent, yarnNine)},
		{src: files(dependent, yarnNine, ".yarnrc.yml: enableScripts: true"), want: "unlisted"},
		{src: files(dependent, yarnNine), env: "YARN_ENABLE_SCRIPTS", want: "unlisted"},
		{src: files(dependent, yarnEight), want: "unlisted"},
		{src: files(dependent, yarnEight, ".yarnrc.yml: enableScripts: false")},
		{src: files(dependent, yarnEight, ".yarnrc.yml: # enableScripts: false"), want: "unlisted"},
		{src: files(`package.json: {"dependencies": {"a": "1"}, "dependenciesMeta": {"esbuild@1": {"built": true}, "reads": {"built": false}}}`, yarnNine)},
		{src: files(`package.json: {"dependencies": {"a": "1"}, "dependenciesMeta": {"reads": {"built": true}}}`, yarnNine), want: "reads has an install script"},
		{src: files(dependent, "yarn.lock: # yarn lockfile v1"), want: "unlisted"},
	} {
		d, _ := Lookup("node")
		plan, _ := d.Detect(c.src)
		in := d.InstallInputs(c.src, ".", plan.Install.Line, "", map[string]string{c.env: "true"})
		got := in.Whole
		if in.Unlisted {
			got = "unlisted"
		}
		if got != c.want {
			t.Errorf("%v: got %q, want %q", c.src, got, c.want)
		}
	}
}

// The script reads folders of packages as all package managers leave them.
func TestFindScripts_ShowWhatMayHaveRead(t *testing.T) {
	const script = `{"scripts": {"postinstall": "node x.js"}}`
	for _, c := range []struct{ name, text, want string }{
		{"node_modules/a/package.json", `{"scripts": {"test": "x", "prepare": "x"}}`, ""},
		{"node_modules/a/package.json", script, "a"},
		{"node_modules/a/package.json", `{"scripts": {"preinstall" : "x"}}`, "a"},
		{"node_modules/a/package.json", `{"scripts": {"install": "x"}}`, "a"},
		{"node_modules/a/binding.gyp", "{}", "a"},
		{"node_modules/a/src/package.json", script, ""},
		{"node_modules/esbuild/package.json", script, ""},
		{"node_modules/@x/esbuild/package.json", script, "@x/esbuild"},
		{"node_modules/esbuild/node_modules/b/package.json", script, "b"},
		{"node_modules/.pnpm/@x+y@1.0.0/node_modules/@x/y/package.json", script, "@x/y"},
		{".yarn/unplugged/y-npm-1.0.0-1/node_modules/y/package.json", script, "y"},
		{"web/node_modules/y/package.json", script, "y"},
		{"node_modules/a\n./node_modules/esbuild/package.json", script, "a dependency"},
		{"package.json", script, ""},
	} {
		folder := t.TempDir()
		file := filepath.Join(folder, c.name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), "sh", "-c", FindScripts)
		cmd.Dir = folder
		found, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		if got := Reader(string(found)); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestReader_TakesWhatItDoesNotUnderstandForOne(t *testing.T) {
	for found, want := range map[string]string{
		"":                                   "",
		"./node_modules/a\nb/package.json\n": "a dependency",
		"./node_modules/a\x1b[31m/package.json\n":            "a?[31m",
		strings.Repeat("./node_modules/sharp/x\n", 1<<12):    "a dependency",
		"./node_modules/sharp/x\n./node_modules/esbuild/x\n": "",
	} {
		if got := Reader(found); got != want {
			t.Errorf("%.60q: %q, want %q", found, got, want)
		}
	}
}
