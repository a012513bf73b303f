package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestInstalledDefaults_AreThoseOfTheStartInAReload(t *testing.T) {
	const name = "BERTHD_TEST_SETTING"
	settingsFile = filepath.Join(t.TempDir(), "berthd.env")
	t.Cleanup(func() { settingsFile = "" })
	if err := os.WriteFile(settingsFile, []byte(name+"=new\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(name, "") // restores it
	for _, c := range []struct {
		reload bool
		want   string
	}{{true, ""}, {false, "new"}} {
		if err := os.Unsetenv(name); err != nil {
			t.Fatal(err)
		}
		if c.reload {
			t.Setenv("BERTHD_PREDECESSOR", "control")
		} else if err := os.Unsetenv("BERTHD_PREDECESSOR"); err != nil {
			t.Fatal(err)
		}
		if err := installedDefaults(); err != nil || os.Getenv(name) != c.want {
			t.Errorf("in a reload: %v: %q, %v, want %q", c.reload, os.Getenv(name), err, c.want)
		}
	}
}
