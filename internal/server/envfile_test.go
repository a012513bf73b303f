package server_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/server"
)

func envFile(t *testing.T, flag func(string) (string, bool)) string {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, server.PrintFile(&out, flag))
	return out.String()
}

func noFlag(string) (string, bool) { return "", false }

func TestPrintFile_HasEverySettingDocumentedAndCommentedOut(t *testing.T) {
	text := envFile(t, noFlag)
	for line := range strings.Lines(text) {
		require.True(t, line == "\n" || strings.HasPrefix(line, "#"), line)
		require.LessOrEqual(t, len(line), 200, line)
	}
	paragraphs := map[string]string{}
	for paragraph := range strings.SplitSeq(text, "\n\n") {
		i := strings.LastIndex(strings.TrimRight(paragraph, "\n"), "\n")
		if assignment := strings.TrimSpace(paragraph[i+1:]); strings.HasPrefix(assignment, "#BERTH_") {
			paragraphs[assignment] = strings.Join(strings.Fields(strings.ReplaceAll(paragraph[:i], "\n#", " ")), " ")
		}
	}
	require.Len(t, paragraphs, len(server.Settings()))
	for _, s := range server.Settings() {
		require.Equal(t, "# "+s.Meaning, paragraphs["#"+s.Name+"="+s.Default], s.Name)
	}
}

func TestPrintFile_ShowsTheDefaultOfAPackage(t *testing.T) {
	t.Setenv("BERTH_DATA_DIR", "/of/the/machine/that/builds")
	text := envFile(t, func(name string) (string, bool) { return "/var/lib/berth", name == "data-dir" })
	require.Contains(t, text, "\n#BERTH_DATA_DIR=/var/lib/berth\n")
}

func TestLoadFile_SetsWhatTheEnvironmentDoesNotHave(t *testing.T) {
	path := filepath.Join(t.TempDir(), "berthd.env")
	t.Setenv("BERTH_TEST_GIVEN", "environment")
	for _, name := range []string{"BERTH_TEST_PLAIN", "BERTH_TEST_QUOTED", "BERTH_TEST_COMMENTED"} {
		t.Setenv(name, "") // restores it after the test
		require.NoError(t, os.Unsetenv(name))
	}
	require.NoError(t, os.WriteFile(path, []byte(envFile(t, noFlag)+"\n; x\nBERTH_TEST_GIVEN=file\n BERTH_TEST_PLAIN=a b=c \r\nBERTH_TEST_QUOTED=\"d e\"\n#BERTH_TEST_COMMENTED=f\n"), 0o600))
	require.NoError(t, server.LoadFile(path))
	for name, want := range map[string]string{"BERTH_TEST_GIVEN": "environment", "BERTH_TEST_PLAIN": "a b=c", "BERTH_TEST_QUOTED": "d e"} {
		require.Equal(t, want, os.Getenv(name), name)
	}
	_, set := os.LookupEnv("BERTH_TEST_COMMENTED")
	require.False(t, set)

	require.NoError(t, server.LoadFile(path+".none"))
	require.NoError(t, os.WriteFile(path, []byte("BERTH_LISTEN\n"), 0o600))
	require.ErrorContains(t, server.LoadFile(path), "not NAME=value")
}
