package cli

import (
	"fmt"
	"image"
	"image/color"
	"strings"

	"github.com/boombuler/barcode/qr"
)

// quietZone is how many light modules are around a code.
const quietZone = 2

// showQR draws a QR code of a link on terminals that are wide enough.
func (u *ui) showQR(link string) {
	if !u.shows || u.quiet {
		return
	}
	code, err := qr.Encode(link, qr.L, qr.Auto)
	if err != nil || code.Bounds().Dx()+2*quietZone > u.width {
		return // the link itself has been printed
	}
	fmt.Fprintln(u.err)
	for _, line := range qrLines(code) {
		if u.color {
			line = "\x1b[30;107m" + line + "\x1b[0m"
		}
		fmt.Fprintln(u.err, line)
	}
}

// qrLines draws two rows of modules as one line of text, dark on light; a terminal
// without colours shows light on dark, which readers accept as well.
func qrLines(code image.Image) []string {
	size := code.Bounds().Dx()
	var lines []string
	for y := -quietZone; y < size+quietZone; y += 2 {
		var b strings.Builder
		for x := -quietZone; x < size+quietZone; x++ {
			b.WriteString(halves[dark(code, x, y)][dark(code, x, y+1)])
		}
		lines = append(lines, b.String())
	}
	return lines
}

// halves maps whether the upper and the lower of two modules are dark to a character.
var halves = map[bool]map[bool]string{
	true:  {true: "█", false: "▀"},
	false: {true: "▄", false: " "},
}

func dark(code image.Image, x, y int) bool {
	if !(image.Point{X: x, Y: y}).In(code.Bounds()) {
		return false
	}
	return color.GrayModel.Convert(code.At(x, y)).(color.Gray).Y < 128
}
