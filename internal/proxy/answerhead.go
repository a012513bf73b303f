package proxy

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
)

// maxHead limits the head of an answer, and its trailers, in bytes.
const maxHead = 256 << 10

// head is the parsed head of an answer. Its fields are reused from one answer
// of a connection to the next.
type head struct {
	minor     int // HTTP/1.minor
	status    int
	length    int64 // of Content-Length, -1 without one
	chunked   bool
	close     bool          // the connection ends with this answer
	keepAlive time.Duration // how long the upstream keeps it, less a second; 0 if it does not say
	fields    []field
	hop       []string // canonical names that Connection lists beside the usual ones
}

// field is one header line: its canonical name, and its value as sent.
type field struct{ key, value string }

// badAnswer says how an upstream's answer violates HTTP.
type badAnswer string

func (b badAnswer) Error() string { return "invalid answer: " + string(b) }

// read reads one head, including its empty line.
func (h *head) read(br *bufio.Reader) error {
	text, err := readBlock(br)
	if err != nil {
		return err
	}
	return h.parse(text)
}

// readBlock reads lines up to and including the first empty one.
func readBlock(br *bufio.Reader) (string, error) {
	if _, err := br.Peek(1); err != nil {
		return "", err
	}
	buffered, _ := br.Peek(br.Buffered())
	if n := blockEnd(buffered); n > 0 {
		text := string(buffered[:n])
		br.Discard(n)
		return text, nil
	}
	var block []byte
	for lineStart := 0; ; {
		part, err := br.ReadSlice('\n')
		block = append(block, part...)
		if len(block) > maxHead {
			return "", badAnswer("its head is larger than " + strconv.Itoa(maxHead) + " bytes")
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return "", err
		}
		if line, _ := cutLine(string(block[lineStart:])); line == "" {
			return string(block), nil
		}
		lineStart = len(block)
	}
}

// blockEnd returns the length of the lines in b up to and including the first empty
// one; 0 if b has none yet.
func blockEnd(b []byte) int {
	for i := 0; i < len(b); {
		n := bytes.IndexByte(b[i:], '\n')
		if n < 0 {
			return 0
		}
		if n == 0 || n == 1 && b[i] == '\r' {
			return i + n + 1
		}
		i += n + 1
	}
	return 0
}

// parse fills h from the text of a head.
func (h *head) parse(text string) error {
	*h = head{length: -1, fields: h.fields[:0], hop: h.hop[:0]}
	line, rest := cutLine(text)
	if err := h.parseStatus(line); err != nil {
		return err
	}
	var err error
	if h.fields, err = parseFields(h.fields, rest); err != nil {
		return err
	}
	for i := range h.fields {
		if err := h.note(&h.fields[i]); err != nil {
			return err
		}
	}
	if h.chunked && h.length >= 0 {
		return badAnswer("it has both Content-Length and Transfer-Encoding")
	}
	if h.chunked && h.minor == 0 {
		return badAnswer("it has Transfer-Encoding in HTTP/1.0")
	}
	h.close = h.close || h.minor == 0
	return nil
}

// parseStatus parses a status line such as "HTTP/1.1 200 OK".
func (h *head) parseStatus(line string) error {
	const prefix = "HTTP/1."
	if len(line) < len(prefix)+5 || line[:len(prefix)] != prefix || line[8] != ' ' {
		return badAnswer("it does not begin with an HTTP/1 status line")
	}
	h.minor = int(line[7] - '0')
	if h.minor > 1 {
		return badAnswer("it is not HTTP/1.0 or 1.1")
	}
	status, err := strconv.ParseUint(line[9:12], 10, 16)
	if err != nil || status < 100 || len(line) > 12 && line[12] != ' ' {
		return badAnswer("its status is not a number of three digits")
	}
	h.status = int(status)
	return nil
}

// note records a field that the exchange itself must know.
func (h *head) note(f *field) error {
	switch f.key {
	case "Content-Length":
		n, err := strconv.ParseUint(f.value, 10, 63)
		if err != nil {
			return badAnswer("its Content-Length is not a number")
		}
		if h.length >= 0 && h.length != int64(n) {
			return badAnswer("it has two different Content-Lengths")
		}
		h.length = int64(n)
	case "Transfer-Encoding":
		if h.chunked || !strings.EqualFold(f.value, "chunked") {
			return badAnswer("its Transfer-Encoding is not chunked")
		}
		h.chunked = true
	case "Connection":
		names, closes := connectionOptions(h.hop, []string{f.value})
		h.hop, h.close = names, h.close || closes
	case "Keep-Alive":
		h.keepAlive = keepAliveHint(f.value)
	}
	return nil
}

// keepAliveHint returns the timeout of a Keep-Alive field, less a second for the
// transfer.
func keepAliveHint(value string) time.Duration {
	for part := range strings.SplitSeq(value, ",") {
		if s, ok := strings.CutPrefix(strings.TrimSpace(part), "timeout="); ok {
			if n, err := strconv.ParseUint(s, 10, 20); err == nil {
				return max(time.Duration(n)*time.Second-time.Second, time.Second/2)
			}
		}
	}
	return 0
}

// hasBody reports whether a body follows the head in an answer to method.
func (h *head) hasBody(method string) bool {
	return method != http.MethodHead && h.status != http.StatusNoContent &&
		h.status != http.StatusNotModified && h.status >= 200 && h.length != 0
}

// overpromises reports whether the head announces a body although its status has none;
// the service may send it.
func (h *head) overpromises() bool {
	return (h.status < 200 || h.status == http.StatusNoContent) && (h.chunked || h.length > 0)
}

func (h *head) get(key string) string {
	for i := range h.fields {
		if h.fields[i].key == key {
			return h.fields[i].value
		}
	}
	return ""
}

// parseFields appends the header lines of text, up to its empty line, to fields.
func parseFields(fields []field, text string) ([]field, error) {
	for text != "" {
		var line string
		if line, text = cutLine(text); line == "" {
			break
		}
		name, value, ok := strings.Cut(line, ":")
		if !ok || !httpguts.ValidHeaderFieldName(name) {
			return fields, badAnswer(fmt.Sprintf("its header line %.40q has no name", line))
		}
		value = strings.Trim(value, " \t")
		if !httpguts.ValidHeaderFieldValue(value) {
			return fields, badAnswer(fmt.Sprintf("its header %.40q holds a control character", name))
		}
		fields = append(fields, field{textproto.CanonicalMIMEHeaderKey(name), value})
	}
	return fields, nil
}

// cutLine cuts the first line off text, without its end.
func cutLine(text string) (line, rest string) {
	line, rest, _ = strings.Cut(text, "\n")
	return strings.TrimSuffix(line, "\r"), rest
}
