package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/backup"
	"github.com/berth-host/berth/internal/operator"
	"github.com/berth-host/berth/internal/server"
)

func TestReport_SaysWhatABackupHasNot(t *testing.T) {
	const (
		moving  = "Copied while its service ran, so that its files may be of different moments: dir/stacks/0123456789ab/backup/web.tar\n"
		noKey   = "The installation's key is not in it. Keep a copy of /data/key apart from it: a restore needs both.\nCertificates that an authority issued are not in it either, and are ordered again.\n"
		noRows  = "The database is not in it: back it up with pg_dump.\n"
		missing = "Not in it: data of stk_0123456789ab/web: the disk is broken\n"
	)
	database := backup.Entry{Name: "dir/berth.db"}
	for name, c := range map[string]struct {
		secrets bool
		backup  backup.Manifest
		says    string
		fails   bool
	}{
		"all":       {true, backup.Manifest{Entries: []backup.Entry{database}}, "", false},
		"no key":    {false, backup.Manifest{Entries: []backup.Entry{database}}, noKey, false},
		"no rows":   {true, backup.Manifest{}, noRows, false},
		"in motion": {true, backup.Manifest{Entries: []backup.Entry{database}, Moving: []string{"dir/stacks/0123456789ab/backup/web.tar", "dir/stacks/0123456789ab/logs/run"}}, moving, false},
		"missing":   {true, backup.Manifest{Entries: []backup.Entry{database}, Missing: []string{"data of stk_0123456789ab/web: the disk is broken"}}, missing, true},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			cmd := &cobra.Command{}
			cmd.SetErr(&out)
			c.backup.At = time.Date(2026, 11, 28, 9, 0, 0, 0, time.UTC)
			b := backupTo{cmd: cmd, what: operator.Backup{Secrets: c.secrets}}
			err := b.report(server.Config{DataDir: "/data"}, &c.backup, 1234*time.Millisecond)
			require.Equal(t, "Backed up as of 2026-11-28T09:00:00Z, in 1.2s.\n"+c.says, out.String())
			require.Equal(t, c.fails, err != nil)
		})
	}
}
