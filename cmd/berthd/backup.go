package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-host/berth/internal/backup"
	"github.com/berth-host/berth/internal/disk"
	"github.com/berth-host/berth/internal/operator"
	"github.com/berth-host/berth/internal/server"
)

func backupCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "backup FILE|-",
		Short: "Write everything that this server has to a file or a folder, while it serves",
		Long: "Writes the database, sources, sites and logs, and the data of all stacks, as of the moment it begins or later, as one archive to FILE or, for -, to the standard output; or with --dir as plain files to a folder. " +
			"FILE is replaced once all of it is there. The installation's key is in an encrypted archive only: without it nothing sealed in the database can be read, so keep it apart otherwise. " +
			"The exit code is 1, and what was written is kept, if the data of a service could not be read.",
		Args: cobra.MaximumNArgs(1),
		RunE: configured(makeBackup),
	}
	cmd.Flags().String("dir", "", "write plain files to this folder, and leave those that have not changed")
	cmd.Flags().Bool("images", false, "put the images that stacks run from in; a restore builds them again without")
	cmd.Flags().StringArray("recipient", nil, "encrypt for a public key of age; may be given several times")
	cmd.Flags().String("passphrase-file", "", "encrypt with the passphrase in the first line of this file")
	return cmd
}

func makeBackup(cmd *cobra.Command, config server.Config, args []string) error {
	dir, _ := cmd.Flags().GetString("dir") // the flags exist
	images, _ := cmd.Flags().GetBool("images")
	names, _ := cmd.Flags().GetStringArray("recipient")
	phraseFile, _ := cmd.Flags().GetString("passphrase-file")
	switch {
	case dir == "" && len(args) != 1:
		return errors.New("berthd backup takes one file, or - for the standard output; or name a folder by --dir")
	case dir != "" && len(args) > 0:
		return errors.New("--dir writes to a folder and takes no file")
	case dir != "" && (len(names) > 0 || phraseFile != ""):
		return errors.New("--dir writes plain files, for a program that encrypts what it keeps; leave out --recipient and --passphrase-file")
	}
	target := dir
	if target == "" {
		target = args[0]
	}
	if target != "-" && isWithin(target, config.DataDir) {
		return fmt.Errorf("%s is in the data directory, and the backup would have itself; name a place outside %s", target, config.DataDir)
	}
	recipients, err := backup.Recipients(names, phraseFile)
	if err != nil {
		return err
	}
	to, err := clientOf(config)
	if err != nil {
		return err
	}
	b := backupTo{cmd: cmd, server: to, what: operator.Backup{Images: images, Secrets: len(recipients) > 0}, recipients: recipients}
	begun := time.Now()
	var m *backup.Manifest
	switch {
	case dir != "":
		m, err = b.folder(dir)
	case args[0] == "-":
		m, err = b.stream(cmd.OutOrStdout())
	default:
		m, err = b.file(args[0])
	}
	if err != nil {
		return err
	}
	return b.report(config, m, time.Since(begun))
}

// isWithin reports whether a path is in a folder, whatever links lead there. What is not there
// yet is where its folder is.
func isWithin(path, folder string) bool {
	within, err := os.Stat(folder)
	path, abs := filepath.Abs(path)
	if err != nil || abs != nil {
		return false
	}
	for {
		if real, err := filepath.EvalSymlinks(path); err == nil {
			path = real
		}
		if info, err := os.Stat(path); err == nil && os.SameFile(info, within) {
			return true
		}
		up := filepath.Dir(path)
		if up == path {
			return false
		}
		path = up
	}
}

// backupTo is where a backup is written.
type backupTo struct {
	cmd        *cobra.Command
	server     *operator.Client
	what       operator.Backup
	recipients []backup.Recipient // none for one that is not encrypted
}

func (b *backupTo) folder(dir string) (m *backup.Manifest, err error) {
	err = b.server.BackUp(b.cmd.Context(), b.what, func(r io.Reader) (err error) {
		m, err = backup.WriteFolder(dir, r)
		return err
	})
	return m, err
}

func (b *backupTo) stream(w io.Writer) (m *backup.Manifest, err error) {
	buffered := bufio.NewWriterSize(w, 1<<18)
	to := io.Writer(buffered)
	end := func() error { return nil }
	if len(b.recipients) > 0 {
		encrypted, err := backup.Encrypt(buffered, b.recipients)
		if err != nil {
			return nil, err
		}
		to, end = encrypted, encrypted.Close
	}
	err = b.server.BackUp(b.cmd.Context(), b.what, func(r io.Reader) (err error) {
		m, err = backup.Copy(to, r)
		return err
	})
	if err == nil {
		err = end()
	}
	if err == nil {
		err = buffered.Flush()
	}
	return m, err
}

// file writes the backup beside the file, which it replaces in the end.
func (b *backupTo) file(name string) (m *backup.Manifest, err error) {
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		return nil, fmt.Errorf("%s is a folder; name it by --dir, or name a file", name)
	}
	if _, err := os.Stat(filepath.Dir(name)); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no folder %s; make it first", filepath.Dir(name))
	}
	file, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".*.part") // with mode 0600
	if err != nil {
		return nil, err
	}
	if m, err = b.stream(file); err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), name)
	}
	if err == nil {
		return m, disk.Sync(filepath.Dir(name))
	}
	return nil, errors.Join(err, os.Remove(file.Name()))
}

// report says what the backup has, and what it does not have.
func (b *backupTo) report(config server.Config, m *backup.Manifest, took time.Duration) error {
	talk := b.cmd.ErrOrStderr()
	fmt.Fprintf(talk, "Backed up as of %s, in %s.\n", m.At.Format(time.RFC3339), took.Round(time.Second/10))
	for _, name := range server.MovingData(m) {
		fmt.Fprintf(talk, "Copied while its service ran, so that its files may be of different moments: %s\n", name)
	}
	if !b.what.Secrets {
		fmt.Fprintf(talk, "The installation's key is not in it. Keep a copy of %s apart from it: a restore needs both.\nCertificates that an authority issued are not in it either, and are ordered again.\n", config.KeyPath())
	}
	if !server.HasDatabase(m) {
		fmt.Fprintln(talk, "The database is not in it: back it up with pg_dump.")
	}
	for _, what := range m.Missing {
		fmt.Fprintf(talk, "Not in it: %s\n", what)
	}
	if len(m.Missing) > 0 {
		return errors.New("not all data could be read; what could be is backed up")
	}
	return nil
}

func restoreCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "restore FILE|DIR",
		Short: "Bring what a backup has to an empty machine, while no server runs",
		Long: "Checks every sum of a backup, and then writes it to the empty data directory. The server that starts next brings all stacks back at their URLs, " +
			"with the same BERTH_BASE_URL; images that the backup does not have are built again.",
		Args: words(1, "the file or the folder with a backup"),
		RunE: configured(restoreBackup),
	}
	cmd.Flags().String("key", "", "file with the installation's key, which a backup that is not encrypted does not have")
	cmd.Flags().String("identity", "", "file with the private key of age that opens the backup")
	cmd.Flags().String("passphrase-file", "", "file with the passphrase that opens the backup, in its first line")
	return cmd
}

func restoreBackup(cmd *cobra.Command, config server.Config, args []string) error {
	key, _ := cmd.Flags().GetString("key") // the flags exist
	identity, _ := cmd.Flags().GetString("identity")
	phrase, _ := cmd.Flags().GetString("passphrase-file")
	if args[0] == "-" {
		return errors.New("a backup is read twice, first to check it: write it to a file, and restore that")
	}
	m, err := server.Restore(cmd.Context(), config, server.Restoring{Path: args[0], KeyFile: key, IdentityFile: identity, PassphraseFile: phrase})
	if err != nil {
		return err
	}
	talk := cmd.ErrOrStderr()
	fmt.Fprintf(talk, "Restored the backup of %s into %s.\n", m.At.Format(time.RFC3339), config.DataDir)
	if !server.HasDatabase(m) {
		fmt.Fprintln(talk, "Its database is not in it: restore that with pg_restore before you start berthd.")
	}
	fmt.Fprintln(talk, "Start berthd with the settings of before (systemctl enable --now berthd); it brings the stacks back.")
	return nil
}
