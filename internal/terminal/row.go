package terminal

import (
	"fmt"
	"strings"
)

// cell is a text in a column of a row.
type cell struct {
	text  string
	width int // of the column, in cells of the terminal; 0 leaves it out
	right bool
	style style
}

// row puts cells side by side. What is blank at its end is left out: it would be drawn
// for nothing.
func row(gap string, colour bool, cells ...cell) string {
	var line strings.Builder
	blank := 0 // cells of the terminal, not written yet
	first := true
	for _, c := range cells {
		if c.width <= 0 {
			continue
		}
		if !first {
			blank += len(gap)
		}
		first = false
		text := Cut(c.text, c.width)
		room := max(c.width-Width(text), 0)
		if c.right && text != "" {
			blank, room = blank+room, 0
		}
		if text == "" {
			blank += room
			continue
		}
		line.WriteString(strings.Repeat(" ", blank) + paint(text, c.style, colour))
		blank = room
	}
	return line.String()
}

// widest is the width of the widest text of a list, and at least that.
func widest[T any](least int, list []T, text func(T) string) int {
	for _, one := range list {
		least = max(least, Width(text(one)))
	}
	return least
}

// listed returns a head and lines, n lines in all: those for which there is no room
// are counted in the last one.
func listed(head string, lines []string, n, w int, colour bool) []string {
	out := []string{paint(Cut(head, w), bold, colour)}
	if room := n - 1; len(lines) > room {
		more := paint(Cut(fmt.Sprintf("… and %d more", len(lines)-room+1), w), faint, colour)
		lines = append(lines[:room-1:room-1], more)
	}
	return append(out, lines...)
}

// edges puts one text on the left and one on the right, if there is room.
func edges(left, right string, w int) string {
	if Width(left)+2+Width(right) > w {
		return Cut(left, w)
	}
	return Fit(left, w-Width(right)) + right
}
