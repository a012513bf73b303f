package web

import (
	"context"
	"io"
	"net/url"
	"slices"
	"strings"

	"github.com/a-h/templ"
	"github.com/gofiber/fiber/v2"

	"github.com/berth-host/berth/internal/docs"
	"github.com/berth-host/berth/internal/store"
)

// docsPage answers GET /docs.
func (w *pages) docsPage(c *fiber.Ctx, s store.Session) error {
	return w.render(c, fiber.StatusOK, referencePage(w.newPage(c, s, "API", "", "docs"), w.cfg.Reference))
}

// word is a part of a text; it may be a link or code.
type word struct {
	Text string
	Link string // address; "" for none
	Code bool
}

// typeWords returns the words of a field's type; the names of schemas link to them.
func typeWords(ref docs.Reference, kind string) []word {
	var words []word
	for i, name := range strings.Split(kind, " ") {
		if i > 0 {
			words = append(words, word{Text: " "})
		}
		link := ""
		if slices.ContainsFunc(ref.Schemas, func(s docs.Schema) bool { return s.Name == name }) {
			link = "#" + anchor("shape", name)
		}
		words = append(words, word{Text: name, Link: link})
	}
	return words
}

// inline writes words one after the other, without spaces between them.
func inline(words []word) templ.Component {
	return templ.ComponentFunc(func(_ context.Context, out io.Writer) error {
		for _, w := range words {
			text := templ.EscapeString(w.Text)
			switch {
			case w.Link != "":
				text = `<a href="` + templ.EscapeString(w.Link) + `">` + text + `</a>`
			case w.Code:
				text = `<code>` + text + `</code>`
			}
			if _, err := io.WriteString(out, text); err != nil {
				return err
			}
		}
		return nil
	})
}

// paragraphs returns the parts of a description that empty lines separate.
func paragraphs(text string) []string {
	if text = strings.TrimSpace(text); text == "" {
		return nil
	}
	return strings.Split(text, "\n\n")
}

// codeWords returns a text's parts: text between backquotes becomes code, and addresses
// become links.
func codeWords(text string) []word {
	var words []word
	for i, part := range strings.Split(text, "`") {
		if i%2 == 1 {
			words = append(words, word{Text: part, Code: true})
			continue
		}
		words = append(words, linkWords(part)...)
	}
	return words
}

// linkWords turns the addresses in a text into links.
func linkWords(text string) []word {
	at := strings.Index(text, "http")
	if at < 0 {
		return []word{{Text: text}}
	}
	address := strings.TrimRight(strings.Fields(text[at:])[0], ".,")
	if u, err := url.Parse(address); err != nil || u.Host == "" {
		return []word{{Text: text}}
	}
	return append([]word{{Text: text[:at]}, {Text: address, Link: address}}, linkWords(text[at+len(address):])...)
}

// anchor returns the anchor of a name on the page; names of different kinds may be
// equal.
func anchor(kind, name string) string {
	return kind + "-" + strings.ToLower(strings.ReplaceAll(name, " ", "-"))
}
