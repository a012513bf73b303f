package backup

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/stretchr/testify/require"
)

var moment = time.Date(2026, 11, 28, 9, 0, 0, 123456789, time.UTC)

// contents are the files of the backups of these tests; links lead from the key to the value.
var (
	contents = map[string]string{"dir/berth.db": "rows", "dir/stacks/one/index.html": "page", "data/one/web.tar": strings.Repeat("data ", 120)}
	links    = map[string]string{"dir/stacks/one/current": "index.html"}
)

func fill(t *testing.T, to *Archive) {
	t.Helper()
	require.NoError(t, to.Add(Entry{Name: "dir/stacks/one", Mode: fs.ModeDir | 0o750, ModTime: moment}, nil, nil))
	for _, name := range []string{"dir/berth.db", "dir/stacks/one/index.html", "data/one/web.tar"} {
		text := contents[name]
		e := Entry{Name: name, Mode: 0o640, ModTime: moment, Size: int64(len(text))}
		require.NoError(t, to.Add(e, strings.NewReader(text), func() bool { return name == "data/one/web.tar" }))
	}
	for name, target := range links {
		require.NoError(t, to.Add(Entry{Name: name, Mode: fs.ModeSymlink | 0o777, ModTime: moment, Link: target}, nil, nil))
	}
	require.NoError(t, to.Close())
}

func archived(t *testing.T) []byte {
	t.Helper()
	var out bytes.Buffer
	fill(t, NewArchive(&out, Manifest{At: moment, Version: "1.2", Key: "fingerprint"}))
	return out.Bytes()
}

// written returns a backup whose file has the bytes.
func written(t *testing.T, text []byte, opens ...age.Identity) Source {
	t.Helper()
	path := filepath.Join(t.TempDir(), "backup")
	require.NoError(t, os.WriteFile(path, text, 0o600))
	return Source{Path: path, Identities: opens, From: "dir"}
}

func requireRestored(t *testing.T, s Source) {
	t.Helper()
	m, err := s.Check(t.Context())
	require.NoError(t, err)
	require.Equal(t, moment, m.At)
	require.Equal(t, []string{"data/one/web.tar"}, m.Moving)
	dir := filepath.Join(t.TempDir(), "restored")
	require.NoError(t, s.Restore(t.Context(), dir, &elsewhere{}))
	for name, text := range contents {
		below, ok := strings.CutPrefix(name, "dir/")
		if !ok {
			require.NoFileExists(t, filepath.Join(dir, name))
			continue
		}
		got, err := os.ReadFile(filepath.Join(dir, below))
		require.NoError(t, err)
		require.Equal(t, text, string(got))
		info, err := os.Stat(filepath.Join(dir, below))
		require.NoError(t, err)
		require.Equal(t, fs.FileMode(0o640), info.Mode())
		require.True(t, info.ModTime().Equal(moment))
	}
	target, err := os.Readlink(filepath.Join(dir, "stacks/one/current"))
	require.NoError(t, err)
	require.Equal(t, "index.html", target)
	info, err := os.Stat(filepath.Join(dir, "stacks/one"))
	require.NoError(t, err)
	require.Equal(t, fs.ModeDir|0o750, info.Mode())
	require.True(t, info.ModTime().Equal(moment))
}

// requireRefused checks that a restore of the backup fails and touches nothing.
func requireRefused(t *testing.T, s Source, text string) {
	t.Helper()
	_, err := s.Check(t.Context())
	require.ErrorContains(t, err, text)
	require.NotContains(t, err.Error(), "\n")
	dir := t.TempDir()
	require.Error(t, s.Restore(t.Context(), dir, &elsewhere{}))
	requireEmpty(t, dir)
}

func TestArchive_IsRestoredAsItWas(t *testing.T) { requireRestored(t, written(t, archived(t))) }

func TestArchive_IsAPlainTar(t *testing.T) {
	in := tar.NewReader(bytes.NewReader(archived(t)))
	var names []string
	for {
		h, err := in.Next()
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		names = append(names, h.Name)
	}
	require.Len(t, names, 7)
	require.Equal(t, []string{manifestName, sumName}, names[5:])
}

func TestCheck_RefusesAChangeOfAnyByte(t *testing.T) {
	whole := archived(t)
	for at := 0; at < len(whole); at += 7 { // each part of each header, and of the padding
		text := bytes.Clone(whole)
		text[at] ^= 0x20
		_, err := readArchive(bytes.NewReader(text), ignore)
		require.Error(t, err, "byte %d", at)
	}
}

func TestCheck_RefusesAnArchiveWithoutItsEnd(t *testing.T) {
	whole := archived(t)
	for size := 0; size < len(whole); size += 13 {
		_, err := readArchive(bytes.NewReader(whole[:size]), ignore)
		require.Error(t, err, "%d bytes", size)
	}
	requireRefused(t, written(t, whole[:len(whole)-1]), "cut off or was changed")
	requireRefused(t, written(t, append(whole, 0)), "cut off or was changed")
}

func TestCheck_RefusesAnArchiveThatWasNotEnded(t *testing.T) {
	var out bytes.Buffer
	a := NewArchive(&out, Manifest{At: moment})
	require.NoError(t, a.Add(Entry{Name: "dir/one", Mode: 0o600, ModTime: moment, Size: 1}, strings.NewReader("1"), nil))
	requireRefused(t, written(t, out.Bytes()), "cut off")
}

func TestRestore_RefusesAFolderThatIsNotEmpty(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "mine"), nil, 0o600))
	require.ErrorContains(t, written(t, archived(t)).Restore(t.Context(), dir, &elsewhere{}), "is not empty")
	names, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, names, 1)
}

// outside are entries that lead out of the folder they are unpacked into, or that nothing
// should be.
var outside = []Entry{
	{Name: "../one", Mode: 0o600},
	{Name: "/one", Mode: 0o600},
	{Name: "dir/../../one", Mode: 0o600},
	{Name: "", Mode: 0o600},
	{Name: "dir/./one", Mode: 0o600},
	{Name: "dir/pipe", Mode: fs.ModeNamedPipe},
	{Name: manifestName, Mode: 0o600},
}

func TestAdd_RefusesWhatLeadsOut(t *testing.T) {
	for _, e := range outside {
		require.Error(t, NewArchive(io.Discard, Manifest{}).Add(e, strings.NewReader(""), nil), "%v", e)
	}
}

func TestCheck_RefusesWhatLeadsOut(t *testing.T) {
	for _, e := range outside[:4] {
		requireRefused(t, written(t, unchecked(t, e)), "leads out")
	}
	link := func(name, target string) Entry { return Entry{Name: name, Mode: fs.ModeSymlink, Link: target} }
	for _, links := range [][]Entry{
		{link("dir/link", "/etc/passwd")},
		{link("dir/link", "../../etc")},
		{link("dir/link", "../data")},
		{link("dir/a/up", ".."), link("dir/b", "a/up/..")},
		{link("dir/a", "b"), link("dir/b", "../..")},
	} {
		requireRefused(t, written(t, unchecked(t, links...)), "leads out")
	}
	requireRestorable(t, unchecked(t, link("dir/a/up", ".."), link("dir/b", "a/up/c"), link("dir/c", "d/../e")))
	requireRestorable(t, unchecked(t, link("dir/a", "b"), link("dir/b", "a"), link("dir/c", "c"), link("dir/d", "a/../../.."), link("dir/e", "f/a"), link("dir/f", ".")))
}

// unchecked returns an archive whose entries are not looked at when they are written.
func unchecked(t *testing.T, entries ...Entry) []byte {
	t.Helper()
	var out bytes.Buffer
	a := NewArchive(&out, Manifest{At: moment})
	for _, e := range entries {
		require.NoError(t, a.tar.WriteHeader(header(e)))
		if e.Mode.IsRegular() {
			e.SHA256 = hex.EncodeToString(sha256.New().Sum(nil))
		}
		e.ModTime = time.Unix(0, 0).UTC()
		a.manifest.Entries = append(a.manifest.Entries, e)
	}
	require.NoError(t, a.Close())
	return out.Bytes()
}

func TestCheck_RefusesWhatCannotBeWritten(t *testing.T) {
	one, folder := Entry{Name: "dir/one", Mode: 0o600}, Entry{Name: "dir/one", Mode: fs.ModeDir | 0o700}
	below := Entry{Name: "dir/one/two", Mode: 0o600}
	requireRestorable(t, unchecked(t, folder, below))
	for text, entries := range map[string][]Entry{
		"is in it twice":                {one, one},
		"is below what is not a folder": {below, one},
		"the name of the mark":          {{Name: "dir/restoring/one", Mode: 0o600}},
		`"dir" is not a folder`:         {{Name: "dir", Mode: 0o600}},
		"the shortest form of its name": {{Name: "dir/./one", Mode: 0o600}},
	} {
		requireRefused(t, written(t, unchecked(t, entries...)), text)
	}
}

func requireRestorable(t *testing.T, text []byte) {
	t.Helper()
	_, err := written(t, text).Check(t.Context())
	require.NoError(t, err)
}

func TestCheck_RefusesEntriesThatTheManifestDoesNotList(t *testing.T) {
	var out bytes.Buffer
	a := NewArchive(&out, Manifest{At: moment})
	require.NoError(t, a.tar.WriteHeader(header(Entry{Name: "dir/one", Mode: 0o600, ModTime: moment})))
	require.NoError(t, a.Close())
	requireRefused(t, written(t, out.Bytes()), "not those of its manifest")
}

func TestCheck_RefusesAnotherFormat(t *testing.T) {
	_, err := decode([]byte(`{"format": 2, "version": "9.1"}`))
	require.EqualError(t, err, "the backup has format 2, and this berthd reads format 1; restore it with the berthd 9.1 that made it")
}

func encrypted(t *testing.T, to []age.Recipient) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := Encrypt(&out, to)
	require.NoError(t, err)
	_, err = w.Write(archived(t))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return out.Bytes()
}

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestEncrypted_IsOpenedByTheKeyItIsFor(t *testing.T) {
	mine, err := age.GenerateX25519Identity()
	require.NoError(t, err)
	other, err := age.GenerateX25519Identity()
	require.NoError(t, err)
	to, err := Recipients([]string{mine.Recipient().String()}, "")
	require.NoError(t, err)
	text := encrypted(t, to)
	opens, err := Identities(file(t, "# created: today\n"+mine.String()+"\n"), "")
	require.NoError(t, err)
	requireRestored(t, written(t, text, opens...))
	requireRefused(t, written(t, text, other), "encrypted for another key")
	requireRefused(t, written(t, text), "--identity")
	requireRefused(t, written(t, text[:len(text)-1], mine), "cut off or was changed")
	text[len(text)/2] ^= 1
	requireRefused(t, written(t, text, mine), "cut off or was changed")
}

func TestEncrypted_IsOpenedByItsPassphrase(t *testing.T) {
	to, err := Recipients(nil, file(t, "correct horse\nsecond line\n"))
	require.NoError(t, err)
	to[0].(*age.ScryptRecipient).SetWorkFactor(10) // not 18, which takes seconds on purpose
	text := encrypted(t, to)
	right, err := Identities("", file(t, "correct horse\r\n"))
	require.NoError(t, err)
	requireRestored(t, written(t, text, right...))
	wrong, err := Identities("", file(t, "wrong horse"))
	require.NoError(t, err)
	requireRefused(t, written(t, text, wrong...), "another passphrase")
}

func TestRecipients_RefusesWhatIsNone(t *testing.T) {
	_, err := Recipients([]string{"age1nothing"}, "")
	require.ErrorContains(t, err, "age-keygen")
	_, err = Recipients(nil, file(t, "\n"))
	require.ErrorContains(t, err, "no passphrase")
	mine, err := age.GenerateX25519Identity()
	require.NoError(t, err)
	_, err = Recipients([]string{mine.Recipient().String()}, file(t, "phrase"))
	require.ErrorContains(t, err, "not both")
	_, err = Identities(file(t, "nothing"), "")
	require.Error(t, err)
}

func foldered(t *testing.T, dir string) {
	t.Helper()
	_, err := WriteFolder(dir, bytes.NewReader(archived(t)))
	require.NoError(t, err)
}

func TestFolder_IsRestoredAsItWas(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "backup")
	foldered(t, dir)
	requireRestored(t, Source{Path: dir, From: "dir"})
}

func TestFolder_LeavesWhatHasNotChanged(t *testing.T) {
	dir := t.TempDir()
	foldered(t, dir)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "dir/berth.db"), []byte("old!"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "dir/gone"), nil, 0o600))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "dir/stacks/two/sites"), 0o700))
	before, err := os.Stat(filepath.Join(dir, "data/one/web.tar"))
	require.NoError(t, err)
	foldered(t, dir)
	requireRestored(t, Source{Path: dir, From: "dir"})
	after, err := os.Stat(filepath.Join(dir, "data/one/web.tar"))
	require.NoError(t, err)
	require.True(t, os.SameFile(before, after))
	require.NoFileExists(t, filepath.Join(dir, "dir/gone"))
	require.NoDirExists(t, filepath.Join(dir, "dir/stacks/two"))
	require.NoFileExists(t, filepath.Join(dir, incoming))
}

func TestFolder_ReplacesLinksWithoutFollowingThem(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	foldered(t, dir)
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "dir/stacks")))
	require.NoError(t, os.Symlink(elsewhere, filepath.Join(dir, "dir/stacks")))
	require.NoError(t, os.Remove(filepath.Join(dir, "dir/berth.db")))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "dir/berth.db"), 0o700))
	foldered(t, dir)
	requireRestored(t, Source{Path: dir, From: "dir"})
	requireEmpty(t, elsewhere)
}

func TestFolder_RefusesOneWithSomethingElse(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "mine"), nil, 0o600))
	_, err := WriteFolder(dir, bytes.NewReader(archived(t)))
	require.ErrorContains(t, err, "not empty")
}

func TestFolder_IsNoBackupUntilAllIsThere(t *testing.T) {
	dir := t.TempDir()
	foldered(t, dir)
	whole := archived(t)
	_, err := WriteFolder(dir, bytes.NewReader(whole[:len(whole)/2]))
	require.ErrorContains(t, err, "cut off")
	requireRefused(t, Source{Path: dir, From: "dir"}, "cut off")
}

func TestFolder_RefusesAChangeOfAnyFile(t *testing.T) {
	for _, change := range []func(dir string) error{
		func(dir string) error { return os.WriteFile(filepath.Join(dir, "dir/berth.db"), []byte("Rows"), 0o600) },
		func(dir string) error { return os.Remove(filepath.Join(dir, "dir/berth.db")) },
		func(dir string) error { return os.Remove(filepath.Join(dir, sumName)) },
		func(dir string) error { return os.WriteFile(filepath.Join(dir, manifestName), []byte("{}"), 0o600) },
		func(dir string) error {
			link := filepath.Join(dir, "dir/stacks/one/current")
			return os.Rename(filepath.Join(dir, "dir/stacks/one/index.html"), link)
		},
	} {
		dir := t.TempDir()
		foldered(t, dir)
		require.NoError(t, change(dir))
		requireRefused(t, Source{Path: dir, From: "dir"}, "changed")
	}
}

func TestTail_HasTheSizeThatReadersHold(t *testing.T) {
	require.Len(t, tail(sha256.New()), tailSize)
}

func TestRestore_GoesOnWhereAnEarlierOneWasCutOff(t *testing.T) {
	s := written(t, archived(t))
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, unfinished), nil, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "berth.db"), []byte("half"), 0o600))
	require.True(t, Unfinished(dir))
	var clean elsewhere
	require.NoError(t, s.Restore(t.Context(), dir, &clean))
	require.Equal(t, 1, clean.cleared)
	require.False(t, Unfinished(dir))
	rows, err := os.ReadFile(filepath.Join(dir, "berth.db"))
	require.NoError(t, err)
	require.Equal(t, "rows", string(rows))
}

// elsewhere takes the entries below a name.
type elsewhere struct {
	below   string
	took    []string
	cleared int
	end     func() error
}

func (o *elsewhere) Clear(context.Context) error {
	o.cleared++
	return nil
}

func (o *elsewhere) Take(_ context.Context, e Entry, content io.Reader) (bool, error) {
	if o.below == "" || !strings.HasPrefix(e.Name, o.below) {
		return false, nil
	}
	text, err := io.ReadAll(content)
	o.took = append(o.took, e.Name+" "+string(text))
	return true, err
}

func (o *elsewhere) End() error {
	if o.end == nil {
		return nil
	}
	return o.end()
}

func requireEmpty(t *testing.T, dir string) {
	t.Helper()
	names, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, names)
}

func TestRestore_WritesSomeElsewhere(t *testing.T) {
	for _, name := range []string{"data/one/web.tar", "dir/berth.db"} {
		dir := t.TempDir()
		to := &elsewhere{below: name, end: func() error {
			require.True(t, Unfinished(dir))
			require.FileExists(t, filepath.Join(dir, "stacks/one/current"))
			return nil
		}}
		require.NoError(t, written(t, archived(t)).Restore(t.Context(), dir, to))
		require.Equal(t, []string{name + " " + contents[name]}, to.took)
		require.NoFileExists(t, filepath.Join(dir, "berth.db")+strings.TrimPrefix(name, "dir/berth.db"))
	}
}

func TestRestore_LeavesNothingWhenItFails(t *testing.T) {
	dir, failed := t.TempDir(), errors.New("no room")
	to := &elsewhere{end: func() error { return failed }}
	require.Equal(t, failed, written(t, archived(t)).Restore(t.Context(), dir, to))
	requireEmpty(t, dir)
	require.Equal(t, 2, to.cleared)
}

func TestRestore_EndsWithItsContext(t *testing.T) {
	dir, to := t.TempDir(), &elsewhere{end: func() error { panic("not all was read") }}
	s := written(t, archived(t))
	_, err := s.Check(canceled(t))
	require.ErrorIs(t, err, context.Canceled)
	foldered(t, filepath.Join(dir, "backup"))
	_, err = Source{Path: filepath.Join(dir, "backup"), From: "dir"}.Check(canceled(t))
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, s.Restore(canceled(t), filepath.Join(dir, "to"), to), context.Canceled)
	requireEmpty(t, filepath.Join(dir, "to"))
}

func canceled(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

func TestRestore_LetsNoOtherIn(t *testing.T) {
	dir, s := t.TempDir(), written(t, archived(t))
	second := &elsewhere{}
	to := &elsewhere{end: func() error {
		require.ErrorContains(t, s.Restore(t.Context(), dir, second), "another restore into "+dir)
		return nil
	}}
	require.NoError(t, s.Restore(t.Context(), dir, to))
	require.Zero(t, second.cleared)
	require.FileExists(t, filepath.Join(dir, "berth.db"))
	require.ErrorContains(t, s.Restore(t.Context(), dir, &elsewhere{}), "is not empty")
}

func TestFolder_IsWrittenAgainAfterAFailure(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "backup")
	_, err := WriteFolder(dir, strings.NewReader("nothing"))
	require.Error(t, err)
	requireRefused(t, Source{Path: dir, From: "dir"}, "cut off")
	foldered(t, dir)
	requireRestored(t, Source{Path: dir, From: "dir"})
}

func TestCopy_KnowsABackupThatIsCutOff(t *testing.T) {
	whole := archived(t)
	var out bytes.Buffer
	m, err := Copy(&out, bytes.NewReader(whole))
	require.NoError(t, err)
	require.Equal(t, moment, m.At)
	require.Equal(t, whole, out.Bytes())
	_, err = Copy(io.Discard, bytes.NewReader(whole[:len(whole)-1]))
	require.ErrorContains(t, err, "cut off")
}
