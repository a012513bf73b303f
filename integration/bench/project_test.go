package main

import (
	"strings"
	"testing"
)

// projects returns every project that is edited.
func projects(t *testing.T) map[string]*project {
	t.Chdir("../..") // where the program runs
	book, err := guestbook()
	if err != nil {
		t.Fatal(err)
	}
	vite, err := viteSite()
	if err != nil {
		t.Fatal(err)
	}
	return map[string]*project{
		"guestbook": book, "vite": vite, "go": goProgram(), "pages": sitePages(10), "modules": modules(fewModules, "true"),
	}
}

func TestProject_EachEditChangesItsLine(t *testing.T) {
	for name, p := range projects(t) {
		source := p.files[p.file]
		if strings.Count(source, p.was) != 1 {
			t.Errorf("%s: %q is not once in %s", name, p.was, p.file)
		}
		first, second := p.changed(1), p.changed(2)
		if first == source || first == second || strings.Contains(first, "%!") {
			t.Errorf("%s: the edits are\n%s\nand\n%s", name, first, second)
		}
		if p.files[p.file] != source {
			t.Errorf("%s: an edit has changed the project", name)
		}
	}
}

func TestProject_HasAsManyFilesAsItsRowSays(t *testing.T) {
	const notCounted = 1 // the manifest
	for what, count := range map[string][2]int{
		"pages":    {len(sitePages(1000).files) - notCounted, 1000},
		"modules":  {len(modules(manyModules, "").files) - notCounted, manyModules},
		"packages": {strings.Count(goProgram().files["main.go"], "\"bench/") + 1, goPackages},
	} {
		if count[0] != count[1] {
			t.Errorf("%d %s, want %d", count[0], what, count[1])
		}
	}
}
