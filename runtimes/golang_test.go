package runtimes

import (
	"strings"
	"testing"
	"testing/fstest"
)

func TestGo_BuildsTheProgramsThatThereAre(t *testing.T) {
	const mod = "go.mod: module example.com/shop\n\ngo 1.26.1\n"
	for i, c := range []struct {
		src            fstest.MapFS
		install, build string
		start          string
	}{
		{files(mod, "main.go: package main"), "", "go build -o bin/ .", "./bin/shop"},
		{files(mod+"require x.y/z v1.0.0", "go.sum: ", "main.go: package main"), "go mod download", "go build -o bin/ .", "./bin/shop"},
		{files(mod+"require (\n\tx.y/z v1.0.0\n)", "main.go: package main"), "go mod tidy", "go build -o bin/ .", "./bin/shop"},
		{files(mod+"require x.y/z v1.0.0", "vendor/modules.txt: ", "main.go: package main"), "", "go build -o bin/ .", "./bin/shop"},
		{files(mod+"require x.y/z/v2 master // indirect", "main.go: package main"), "go mod tidy", "go build -o bin/ .", "./bin/shop"},
		{files(mod+"require (", "main.go: package main"), "", "go build -o bin/ .", "./bin/shop"},
		{files(mod, "shop.go: package shop", "cmd/shopd/main.go: package main"), "", "go build -o bin/ ./cmd/shopd", "./bin/shopd"},
		{files(mod, "cmd/shop/main.go: package main", "cmd/other/main.go: package main"), "", "go build -o bin/ ./cmd/other ./cmd/shop", "./bin/shop"},
		{files(mod, "main.go: package main", "cmd/tool/main.go: package main"), "", "go build -o bin/ . ./cmd/tool", "./bin/shop"},
		{files(mod, "main_test.go: package main", "x.go: //go:build windows\n\npackage main", "y.go: package shop"), "", "", ""},
		{files(mod, "x.go: //go:build linux && !go1.99x\n\npackage main"), "", "", ""},
		{files(mod, "x.go: //go:build linux\n\npackage main"), "", "go build -o bin/ .", "./bin/shop"},
		{files(mod, "a/b/c/main.go: package main", "a/b/c/d/main.go: package main"), "", "go build -o bin/ ./a/b/c", "./bin/c"},
		{files(mod, "tool/go.mod: module tool", "tool/main.go: package main", "testdata/main.go: package main", "_x/main.go: package main"), "", "", ""},
		{files(mod, "main.go: not go at all"), "", "", ""},
	} {
		plan, ok := detectGo(c.src)
		if !ok || plan.Install.Line != c.install || plan.Build.Line != c.build || plan.Start.Line != c.start {
			t.Errorf("%d: %+v", i, plan)
		}
		if c.start == "" && plan.Hint == "" {
			t.Errorf("%d: no hint", i)
		}
	}
}

func TestGo_TakesItsVersionAsTheLeast(t *testing.T) {
	for text, want := range map[string]string{
		"go 1.21": "1.26 go.mod", "go 1.26.3": "1.26 go.mod", "\tgo 1.21 // or later": "1.26 go.mod", "": " ",
		"go 1.21\nrequire x.y/z main": "1.26 go.mod", "go 1.21\nrequire gopkg.in/yaml.v3 main": "1.26 go.mod",
		"go 1.30": "1.26 go.mod asks for >=1.30, which is not offered; 1.26 is the nearest",
	} {
		plan, _ := detectGo(files("go.mod: module x\n" + text + "\n"))
		if got := plan.Version + " " + plan.VersionFrom; got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

func TestGo_NamesTheModule(t *testing.T) {
	for module, want := range map[string]string{"example.com/a/shop": "shop", "example.com/shop/v3": "shop", `"quoted.io/x"`: "x", "plain // comment": "plain"} {
		if plan, _ := detectGo(files("go.mod: module " + module + "\n")); plan.Name != want {
			t.Errorf("%s: %q", module, plan.Name)
		}
	}
}

func TestGo_BoundsTheSearchForPrograms(t *testing.T) {
	src := files("go.mod: module x")
	for i := range 90 {
		src["cmd/"+strings.Repeat("p", i+1)+"/main.go"] = &fstest.MapFile{Data: []byte("package main")}
	}
	if mains := mainPackages(src, ".", 0); len(mains) > 40 {
		t.Errorf("%d programs", len(mains))
	}
}
