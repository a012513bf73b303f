package main

import (
	"bytes"
	"strings"
	"testing"
)

// help returns the help of a command.
func help(t *testing.T, args ...string) string {
	t.Helper()
	return printed(t, append([]string{"help"}, args...)...)
}

// printed returns what a command prints.
func printed(t *testing.T, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	root := command()
	root.SetOut(&out)
	root.SetArgs(args)
	if err := root.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestHelp_ListsTheSettingsOnce(t *testing.T) {
	for _, args := range [][]string{nil, {"backup"}, {"stacks"}, {"stacks", "list"}, {"serve"}} {
		text := help(t, args...)
		if all := strings.Contains(text, "--unclaimed-per-ip"); all != (args == nil) || !strings.Contains(text, "--data-dir string") {
			t.Errorf("%q:\n%s", args, text)
		}
		if points := strings.Contains(text, "berthd help lists them"); points != (args != nil) {
			t.Errorf("%q:\n%s", args, text)
		}
	}
	if text := help(t, "backup"); !strings.Contains(text, "\nFlags:\n      --dir string") {
		t.Error(text)
	}
	if text := help(t, "stacks"); !strings.Contains(text, "\n  list ") {
		t.Error(text)
	}
}

func TestHelp_ShowsTheDataDirectoryOfThePackage(t *testing.T) {
	dataDir = "/var/lib/berth"
	defer func() { dataDir = "" }()
	if text := help(t, "backup"); !strings.Contains(text, `(BERTH_DATA_DIR) (default "/var/lib/berth")`) {
		t.Error(text)
	}
	dataDir = ""
	if text := help(t, "backup"); !strings.Contains(text, `(BERTH_DATA_DIR) (default "./data")`) {
		t.Error(text)
	}
}

func TestMan_ShowsTheDataDirectoryThatItIsGiven(t *testing.T) {
	if text := printed(t, "man", "--data-dir", "/var/lib/berth"); !strings.Contains(text, "(BERTH_DATA_DIR) (default /var/lib/berth)") {
		t.Error(text)
	}
}
