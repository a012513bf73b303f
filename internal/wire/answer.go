package wire

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
)

// MaxAnswer limits the head of an answer, and its trailers, in bytes.
const MaxAnswer = 256 << 10

// The statuses that decide about framing.
const (
	noContent   = 204
	notModified = 304
)

// Answer is the parsed head of an answer. Its fields are reused from one answer of a
// connection to the next.
type Answer struct {
	Minor     int // HTTP/1.Minor
	Status    int
	Length    int64 // of Content-Length, -1 without one
	Chunked   bool
	Close     bool          // the connection ends with this answer
	KeepAlive time.Duration // how long the upstream keeps it, less a second; 0 if it does not say
	Fields    []Field

	hop []string // canonical names that Connection lists beside the usual ones
}

// BadAnswer says how an upstream's answer violates HTTP.
type BadAnswer string

func (b BadAnswer) Error() string { return "invalid answer: " + string(b) }

// Read reads one head, including its empty line.
func (a *Answer) Read(br *bufio.Reader) error {
	text, err := ReadBlock(br)
	if err != nil {
		return err
	}
	return a.parse(text)
}

// ReadBlock reads lines up to and including the first empty one.
func ReadBlock(br *bufio.Reader) (string, error) {
	if _, err := br.Peek(1); err != nil {
		return "", err
	}
	buffered, _ := br.Peek(br.Buffered())
	if n := BlockEnd(buffered); n > 0 {
		text := string(buffered[:n])
		br.Discard(n)
		return text, nil
	}
	var block []byte
	for lineStart := 0; ; {
		part, err := br.ReadSlice('\n')
		block = append(block, part...)
		if len(block) > MaxAnswer {
			return "", BadAnswer("its head is larger than " + strconv.Itoa(MaxAnswer) + " bytes")
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

// BlockEnd returns the length of the lines in b up to and including the first empty
// one; 0 if b has none yet.
func BlockEnd(b []byte) int {
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

// parse fills a from the text of a head.
func (a *Answer) parse(text string) error {
	*a = Answer{Length: -1, Fields: a.Fields[:0], hop: a.hop[:0]}
	line, rest := cutLine(text)
	if err := a.parseStatus(line); err != nil {
		return err
	}
	var err error
	if a.Fields, err = ParseFields(a.Fields, rest); err != nil {
		return err
	}
	for i := range a.Fields {
		if err := a.note(&a.Fields[i]); err != nil {
			return err
		}
	}
	if a.Chunked && a.Length >= 0 {
		return BadAnswer("it has both Content-Length and Transfer-Encoding")
	}
	if a.Chunked && a.Minor == 0 {
		return BadAnswer("it has Transfer-Encoding in HTTP/1.0")
	}
	a.Close = a.Close || a.Minor == 0
	return nil
}

// parseStatus parses a status line such as "HTTP/1.1 200 OK".
func (a *Answer) parseStatus(line string) error {
	const prefix = "HTTP/1."
	if len(line) < len(prefix)+5 || line[:len(prefix)] != prefix || line[8] != ' ' {
		return BadAnswer("it does not begin with an HTTP/1 status line")
	}
	a.Minor = int(line[7] - '0')
	if a.Minor > 1 {
		return BadAnswer("it is not HTTP/1.0 or 1.1")
	}
	status, err := strconv.ParseUint(line[9:12], 10, 16)
	if err != nil || status < 100 || len(line) > 12 && line[12] != ' ' {
		return BadAnswer("its status is not a number of three digits")
	}
	a.Status = int(status)
	return nil
}

// note records a field that the exchange itself must know.
func (a *Answer) note(f *Field) error {
	switch f.Key {
	case "Content-Length":
		n, err := strconv.ParseUint(f.Value, 10, 63)
		if err != nil {
			return BadAnswer("its Content-Length is not a number")
		}
		if a.Length >= 0 && a.Length != int64(n) {
			return BadAnswer("it has two different Content-Lengths")
		}
		a.Length = int64(n)
	case "Transfer-Encoding":
		if a.Chunked || !strings.EqualFold(f.Value, "chunked") {
			return BadAnswer("its Transfer-Encoding is not chunked")
		}
		a.Chunked = true
	case "Connection":
		names, closes := ConnectionOptions(a.hop, []string{f.Value})
		a.hop, a.Close = names, a.Close || closes
	case "Keep-Alive":
		a.KeepAlive = keepAliveHint(f.Value)
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

// HasBody reports whether a body follows the head in an answer to method.
func (a *Answer) HasBody(method string) bool {
	return method != "HEAD" && a.Status != noContent && a.Status != notModified &&
		a.Status >= 200 && a.Length != 0
}

// Overpromises reports whether the head announces a body although its status has none;
// the service may send it.
func (a *Answer) Overpromises() bool {
	return (a.Status < 200 || a.Status == noContent) && (a.Chunked || a.Length > 0)
}

// Get returns the first value of a field, "" without one.
func (a *Answer) Get(key string) string {
	for i := range a.Fields {
		if a.Fields[i].Key == key {
			return a.Fields[i].Value
		}
	}
	return ""
}

// ParseFields appends the header lines of text, up to its empty line, to fields.
func ParseFields(fields []Field, text string) ([]Field, error) {
	for text != "" {
		var line string
		if line, text = cutLine(text); line == "" {
			break
		}
		name, value, ok := strings.Cut(line, ":")
		if !ok || !httpguts.ValidHeaderFieldName(name) {
			return fields, BadAnswer(fmt.Sprintf("its header line %.40q has no name", line))
		}
		value = strings.Trim(value, " \t")
		if !httpguts.ValidHeaderFieldValue(value) {
			return fields, BadAnswer(fmt.Sprintf("its header %.40q holds a control character", name))
		}
		fields = append(fields, Field{textproto.CanonicalMIMEHeaderKey(name), value})
	}
	return fields, nil
}

// cutLine cuts the first line off text, without its end.
func cutLine(text string) (line, rest string) {
	line, rest, _ = strings.Cut(text, "\n")
	return strings.TrimSuffix(line, "\r"), rest
}

// IsHop reports whether a field applies to a single connection.
func (a *Answer) IsHop(key string) bool {
	return HopByHop(key) || a.hop != nil && slices.Contains(a.hop, key)
}
