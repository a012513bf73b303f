package chart

import (
	"encoding/xml"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// paths returns the d of the paths with a class, and fails if the picture is no XML.
func paths(t *testing.T, p *Picture, class string) (found []string) {
	t.Helper()
	in := xml.NewDecoder(strings.NewReader(p.SVG()))
	for {
		token, err := in.Token()
		if err == io.EOF {
			return found
		}
		require.NoError(t, err)
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "path" {
			var is, d string
			for _, a := range e.Attr {
				switch a.Name.Local {
				case "class":
					is = a.Value
				case "d":
					d = a.Value
				}
			}
			require.NotContains(t, d, "N", "a coordinate that is no number")
			if is == class {
				found = append(found, d)
			}
		}
	}
}

func TestPicture_TopIsARoundNumber(t *testing.T) {
	for most, want := range map[float64]float64{0: 1, 0.03: 0.05, 1: 1, 1.1: 2, 3: 5, 7: 10, 101: 200, 4e9: 5e9} {
		p := Picture{Steps: 3, Lines: []Series{{"a", []float64{None, most, 0}}}}
		require.InDelta(t, want, p.Top(), want/1e9, "%g", most)
	}
	require.InDelta(t, 10, (&Picture{Steps: 1, Bars: []Series{{"a", []float64{3}}, {"b", []float64{4}}}}).Top(), 0, "of stacked bars")
	require.InDelta(t, 500, (&Picture{Steps: 1, Lines: []Series{{"a", []float64{3}}}, Ceiling: 400}).Top(), 0, "of a ceiling")
}

func TestPicture_LeavesGaps(t *testing.T) {
	p := &Picture{Steps: 6, Lines: []Series{{"p50", []float64{1, 0.5, None, 0, None, 1}}}}
	require.Equal(t, []string{"M60 0L180 60M360 120H480M600 0H720"}, paths(t, p, "line p50"))
	p.Lines[0].Values = []float64{None, None, None, None, None, None}
	require.Empty(t, paths(t, p, "line p50"))
}

func TestPicture_StacksBars(t *testing.T) {
	p := &Picture{Steps: 2, Bars: []Series{{"ok", []float64{5, None}}, {"bad", []float64{5, 10}}}}
	require.Equal(t, []string{"M0 120h360v-60h-360z"}, paths(t, p, "bar ok"))
	require.Equal(t, []string{"M0 60h360v-60h-360zM360 120h360v-120h-360z"}, paths(t, p, "bar bad"))
}

func TestPicture_MarksWhatHappened(t *testing.T) {
	p := &Picture{Steps: 4, Ceiling: 1, Marks: []Mark{{"deploy", 1, "<b>3</b> is live"}, {"deploy", -1, "before"}, {"deploy", 5, "after"}}}
	require.Equal(t, []string{"M180 0V120"}, paths(t, p, "mark deploy"))
	require.Equal(t, []string{"M0 0H720"}, paths(t, p, "ceiling"))
	require.Contains(t, p.SVG(), "<title>&lt;b&gt;3&lt;/b&gt; is live</title>")
}

func TestPicture_HasWordsForThoseWhoDoNotSeeIt(t *testing.T) {
	got := (&Picture{ID: "web-cpu", Title: `CPU of "web" & more`, Desc: "now 3%"}).SVG()
	require.Contains(t, got, `aria-labelledby="web-cpu-title web-cpu-desc"`)
	require.Contains(t, got, `<title id="web-cpu-title">CPU of &#34;web&#34; &amp; more</title><desc id="web-cpu-desc">now 3%</desc>`)
}

func TestPicture_DrawsAnyValue(t *testing.T) {
	for _, v := range []float64{0, 1e-9, 1e18, None} {
		p := &Picture{Steps: 1, Lines: []Series{{"a", []float64{v}}}, Bars: []Series{{"b", []float64{v}}}}
		paths(t, p, "line a")
		require.NotContains(t, p.SVG(), "Inf")
	}
}
