package integration

import (
	"archive/tar"
	"bufio"
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// uploader sends a file as the source of a create and returns what its client
// printed: the status, a space and the body.
type uploader func(t *testing.T, h *Host, path, framing string, headers ...string) string

// command makes an uploader of a program; @url, @file and @framing stand for
// what it is given.
func command(line ...string) uploader {
	return func(t *testing.T, h *Host, path, framing string, _ ...string) string {
		t.Helper()
		if _, err := exec.LookPath(line[0]); err != nil {
			lacks(t, "%v; install it", err)
		}
		args := make([]string, 0, len(line))
		for _, arg := range line {
			args = append(args, strings.NewReplacer("@url", h.base()+"/v0/stacks", "@file", path, "@framing", framing).Replace(arg))
		}
		cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		require.NoError(t, err, "%s%s", out, stderr.String())
		return string(out)
	}
}

// curl uploads with curl's own form; extra are more of its arguments.
func curl(extra ...string) uploader {
	return func(t *testing.T, h *Host, path, framing string, headers ...string) string {
		t.Helper()
		line := append([]string{"curl", "-sS", "-o", "-", "-w", "\n%{http_code}", "-F", "source=@@file", "@url"}, extra...)
		if framing == "chunked" {
			line = append(line, "-H", "Transfer-Encoding: chunked")
		}
		for _, header := range headers {
			line = append(line, "-H", header)
		}
		out := command(line...)(t, h, path, framing)
		body, status, found := cutLast(out, "\n")
		require.True(t, found, out)
		return status + " " + body
	}
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// goClient uploads with net/http.
func goClient(t *testing.T, h *Host, path, framing string, _ ...string) string {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	info, err := f.Stat()
	require.NoError(t, err)
	var head bytes.Buffer
	w := multipart.NewWriter(&head)
	_, err = w.CreateFormFile("source", "a.tar.gz")
	require.NoError(t, err)
	tail := "\r\n--" + w.Boundary() + "--\r\n"
	size := int64(head.Len()) + info.Size() + int64(len(tail))
	req := h.request(t, http.MethodPost, "/v0/stacks", io.MultiReader(&head, f, strings.NewReader(tail)),
		"Content-Type", w.FormDataContentType())
	if framing == "length" {
		req.ContentLength = size
	}
	r := h.do(t, req)
	return fmt.Sprintf("%d %s", r.status, r.body)
}

// noise writes a file of n random bytes, which no archive is.
func noise(t *testing.T, n int64) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "noise")
	f, err := os.Create(path)
	require.NoError(t, err)
	_, err = io.CopyN(f, rand.Reader, n)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	return path
}

func TestUpload_TooLargeIsReadableForEveryClient(t *testing.T) {
	t.Parallel()
	h := start(t, asShipped)
	files := map[string]string{"60 MB": noise(t, 60_000_000), "90 MB": noise(t, 90_000_000)}
	h.client.CloseIdleConnections()
	before := h.peakMemory(t)
	for name, upload := range map[string]uploader{
		"curl":                  curl(),
		"curl without Expect":   curl("-H", "Expect:"),
		"Go":                    goClient,
		"Python's http.client":  command("python3", "testdata/clients/upload.py", "http.client", "@url", "@file", "@framing"),
		"Python's urllib":       command("python3", "testdata/clients/upload.py", "urllib", "@url", "@file", "@framing"),
		"Node's fetch":          command("node", "testdata/clients/upload.mjs", "@url", "@file", "@framing"),
		"curl that is HTTP/1.0": curl("--http1.0", "-H", "Expect:"),
	} {
		for _, framing := range []string{"length", "chunked"} {
			if strings.HasSuffix(name, "HTTP/1.0") && framing == "chunked" {
				continue // HTTP/1.0 has no chunks
			}
			for size, path := range files {
				t.Run(fmt.Sprintf("%s, %s, %s", name, framing, size), func(t *testing.T) {
					status, body, _ := strings.Cut(upload(t, h, path, framing), " ")
					require.Equal(t, "413", status, body)
					r := Reply{status: 413, header: http.Header{"Content-Type": {"application/json"}}, body: body}
					require.Contains(t, r.detail(t), "larger than 50 MB")
				})
			}
		}
	}
	require.Less(t, h.peakMemory(t)-before, int64(24<<20), "uploads were held in memory")
	require.Empty(t, h.files(t), "refused uploads left files")
}

func TestUpload_OtherRefusalsOfLargeOnesAreReadable(t *testing.T) {
	t.Parallel()
	h := start(t)
	path := noise(t, 45_000_000)
	for _, framing := range []string{"length", "chunked"} {
		for _, upload := range []uploader{curl(), curl("-H", "Expect:")} {
			out := upload(t, h, path, framing, "Authorization: Bearer as_live_wrong")
			require.True(t, strings.HasPrefix(out, "401 {"), out)
			out = upload(t, h, path, framing)
			require.True(t, strings.HasPrefix(out, "422 {"), out)
		}
	}
	require.Empty(t, h.files(t), "refused uploads left files")
}

func TestUpload_OfTheLargestSizeIsTakenWithoutHoldingIt(t *testing.T) {
	t.Parallel()
	h := start(t, asShipped)
	h.live(t, page("warm"), nil)
	path := filepath.Join(t.TempDir(), "large.tar")
	f, err := os.Create(path)
	require.NoError(t, err)
	w := tar.NewWriter(f)
	const blob = 49_900_000
	for name, n := range map[string]int64{"index.html": 5, "blob.bin": blob} {
		require.NoError(t, w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: n}))
		_, err := io.CopyN(w, rand.Reader, n)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	require.NoError(t, f.Close())
	before := h.peakMemory(t)
	for _, framing := range []string{"length", "chunked"} {
		status, body, _ := strings.Cut(goClient(t, h, path, framing), " ")
		require.Equal(t, "201", status, body)
		st := Reply{body: body}.stack(t)
		h.adoptStack(st)
		st = h.mustLive(t, st)
		res, err := h.client.Do(h.request(t, http.MethodGet, st.url("web", "/blob.bin"), nil))
		require.NoError(t, err)
		n, err := io.Copy(io.Discard, res.Body)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		require.EqualValues(t, blob, n)
	}
	require.Less(t, h.peakMemory(t)-before, int64(24<<20), "an upload was held in memory")
}

func TestUpload_IsAskedForBeforeItIsSent(t *testing.T) {
	t.Parallel()
	h := start(t)
	conn := h.dial(t)
	answers := bufio.NewReader(conn)
	body, contentType := form(t, archive(t, page("x")), nil)
	head := fmt.Sprintf("POST /v0/stacks HTTP/1.1\r\nHost: localhost\r\nContent-Type: %s\r\nContent-Length: %d\r\nExpect: 100-continue\r\n", contentType, len(body))
	_, err := io.WriteString(conn, head+"\r\n")
	require.NoError(t, err)
	line, err := answers.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "HTTP/1.1 100 Continue\r\n", line)
	_, err = answers.ReadString('\n')
	require.NoError(t, err)
	_, err = conn.Write(body)
	require.NoError(t, err)
	res, err := http.ReadResponse(answers, nil)
	require.NoError(t, err)
	r := read(t, res)
	require.Equal(t, http.StatusCreated, r.status, r.body)
	h.adoptStack(r.stack(t))
}

// randomText is n bytes that do not compress.
func randomText(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b)
	return string(b)
}

func TestUpload_ThatBreaksOffLeavesNothing(t *testing.T) {
	t.Parallel()
	h := start(t)
	body, contentType := form(t, archive(t, page(rand.Text()).plus(Tree{"noise": randomText(1_000_000)})), nil)
	conn := h.dial(t)
	_, err := fmt.Fprintf(conn, "POST /v0/stacks HTTP/1.1\r\nHost: localhost\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s",
		contentType, len(body), body[:len(body)/2])
	require.NoError(t, err)
	eventually(t, "the upload has begun", func() error {
		if len(h.files(t)) == 0 {
			return fmt.Errorf("no file yet")
		}
		return nil
	})
	require.NoError(t, conn.Close())
	eventually(t, "nothing of the upload is left", func() error {
		if left := h.files(t); len(left) > 0 {
			return fmt.Errorf("there is %v", left)
		}
		return nil
	})
}
