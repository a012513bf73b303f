// Package chart draws measurements over time as pictures in SVG, without text: names, units
// and the ends of the axes stand beside a picture, in the page's own type, so that they can
// be read at every width. What is drawn has a class, which the page's style sheet colours.
//
// The package knows nothing of what was measured, and touches nothing.
package chart

import (
	"fmt"
	"html"
	"math"
	"strconv"
	"strings"
)

// The size of a picture in its own units. The page stretches it.
const (
	width  = 720.0
	height = 120.0
)

// None is the value of a step in which nothing was measured.
var None = math.NaN()

// Series is what was measured of one thing in each step. A step without a value is a gap.
type Series struct {
	Class  string
	Values []float64
}

// Mark is something that happened.
type Mark struct {
	Class string
	At    float64 // steps since the beginning
	Title string
}

// Picture is what to draw. All its series have a value for each of the steps.
type Picture struct {
	ID          string // of the element
	Title, Desc string // for those who do not see it
	Steps       int
	Bars        []Series // stacked on each other
	Lines       []Series
	Ceiling     float64 // a line across; 0 for none
	Marks       []Mark
}

// Top returns the value at the upper edge: the least of 1, 2, 5, 10 and so on, or of their
// fractions, that nothing exceeds; 1 where nothing is above zero.
func (p *Picture) Top() float64 {
	most := p.Ceiling
	for step := range p.Steps {
		most = max(most, p.stacked(step))
		for _, s := range p.Lines {
			if v := s.Values[step]; v > most { // which None is not
				most = v
			}
		}
	}
	return roundUp(most)
}

// stacked returns how high the bars of a step are.
func (p *Picture) stacked(step int) (sum float64) {
	for _, s := range p.Bars {
		if v := s.Values[step]; v > 0 {
			sum += v
		}
	}
	return sum
}

// roundUp returns the least of 1, 2 and 5 times a power of ten that is not below v.
func roundUp(v float64) float64 {
	if v <= 0 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, digit := range []float64{1, 2, 5} {
		if top := digit * power; top >= v {
			return top
		}
	}
	return 10 * power
}

// SVG returns the picture as an element.
func (p *Picture) SVG() string {
	var b strings.Builder
	id := html.EscapeString(p.ID)
	fmt.Fprintf(&b, `<svg id="%s" class="picture" viewBox="0 0 %s %s" preserveAspectRatio="none" role="img" aria-labelledby="%s-title %s-desc"><title id="%s-title">%s</title><desc id="%s-desc">%s</desc>`,
		id, number(width), number(height), id, id, id, html.EscapeString(p.Title), id, html.EscapeString(p.Desc))
	scale := height / p.Top()
	for _, y := range []float64{0.5, height / 2, height - 0.5} {
		fmt.Fprintf(&b, `<path class="grid" d="M0 %sH%s"/>`, number(y), number(width))
	}
	p.drawBars(&b, scale)
	for _, s := range p.Lines {
		path(&b, "line "+s.Class, p.line(s, scale), "")
	}
	if p.Ceiling > 0 {
		path(&b, "ceiling", fmt.Sprintf("M0 %sH%s", number(height-p.Ceiling*scale), number(width)), "")
	}
	for _, m := range p.Marks {
		if m.At >= 0 && m.At <= float64(p.Steps) {
			path(&b, "mark "+m.Class, fmt.Sprintf("M%s 0V%s", number(p.x(m.At)), number(height)), m.Title)
		}
	}
	b.WriteString("</svg>")
	return b.String()
}

// x returns where a step begins.
func (p *Picture) x(step float64) float64 { return width * step / float64(max(p.Steps, 1)) }

// drawBars draws the series on each other, each as one path.
func (p *Picture) drawBars(b *strings.Builder, scale float64) {
	below := make([]float64, p.Steps)
	for _, s := range p.Bars {
		var d strings.Builder
		for step, v := range s.Values {
			if !(v > 0) {
				continue
			}
			left, wide := p.x(float64(step)), p.x(1)
			fmt.Fprintf(&d, "M%s %sh%sv%sh-%sz", number(left), number(height-below[step]*scale), number(wide), number(-v*scale), number(wide))
			below[step] += v
		}
		path(b, "bar "+s.Class, d.String(), "")
	}
}

// line returns the path of a series: from the middle of a step to that of the next, and
// across a step whose neighbours have no value.
func (p *Picture) line(s Series, scale float64) string {
	var d strings.Builder
	has := func(step int) bool { return step >= 0 && step < len(s.Values) && !math.IsNaN(s.Values[step]) }
	for step, v := range s.Values {
		if !has(step) {
			continue
		}
		y := number(height - v*scale)
		switch {
		case has(step - 1):
			fmt.Fprintf(&d, "L%s %s", number(p.x(float64(step)+0.5)), y)
		case has(step + 1):
			fmt.Fprintf(&d, "M%s %s", number(p.x(float64(step)+0.5)), y)
		default:
			fmt.Fprintf(&d, "M%s %sH%s", number(p.x(float64(step))), y, number(p.x(float64(step)+1)))
		}
	}
	return d.String()
}

// path adds a path, unless it is empty.
func path(b *strings.Builder, class, d, title string) {
	if d == "" {
		return
	}
	fmt.Fprintf(b, `<path class="%s" d="%s">`, html.EscapeString(class), d)
	if title != "" {
		fmt.Fprintf(b, "<title>%s</title>", html.EscapeString(title))
	}
	b.WriteString("</path>")
}

// number formats a coordinate with one decimal at most.
func number(v float64) string {
	return strconv.FormatFloat(math.Round(v*10)/10+0, 'f', -1, 64)
}
