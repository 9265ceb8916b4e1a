package top

import (
	"fmt"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/agentsched/agentsched/internal/progress"
)

// clean makes foreign text one line that only stands there.
func clean[T ~string](text T) string { return progress.Clean(string(text)) }

// width is the number of terminal cells that text takes, each character for
// itself, as the renderer counts.
func width(text string) int { return ansi.StringWidthWc(text) }

// cut returns text in at most w cells, the end replaced by "…" if need be. Escape
// sequences that paint has added take no room.
func cut(text string, w int) string {
	if w <= 0 {
		return ""
	}
	return ansi.TruncateWc(text, w, "…")
}

// fit returns text in exactly w cells, on the left of them.
func fit(text string, w int) string {
	text = cut(text, w)
	return text + strings.Repeat(" ", max(w-width(text), 0))
}

// fitRight is fit with the text on the right.
func fitRight(text string, w int) string {
	text = cut(text, w)
	return strings.Repeat(" ", max(w-width(text), 0)) + text
}

// style is a terminal attribute, the parameter of SGR (ECMA-48, 8.3.117).
type style string

const (
	plain   style = ""
	bold    style = "1"
	faint   style = "2"
	reverse style = "7"
	red     style = "31"
	green   style = "32"
	yellow  style = "33"
	cyan    style = "36"
)

// paint returns text in the style, or as it is without colour. What is reversed
// is not a colour: without it nobody would see what is selected.
func (o Options) paint(text string, s style) string {
	if s == plain || text == "" || !o.Colour && s != reverse {
		return text
	}
	return "\x1b[" + string(s) + "m" + text + "\x1b[m"
}

// spanText is a duration in at most 6 cells up to 99 hours.
func spanText(d time.Duration) string {
	s := int64(max(d, 0) / time.Second)
	switch {
	case s < 60:
		return fmt.Sprintf("%ds", s)
	case s < 3600:
		return fmt.Sprintf("%dm%02ds", s/60, s%60)
	case s < 100*3600:
		return fmt.Sprintf("%dh%02dm", s/3600, s/60%60)
	}
	return fmt.Sprintf("%dd%02dh", s/86400, s/3600%24)
}

// countText is a number in at most 6 cells up to 999 billion, e.g. 12.3k.
func countText(n int64) string {
	v, unit := float64(n), ""
	for _, u := range []string{"k", "M", "G"} {
		if v < 999.95 || unit == "" && n < 1000 {
			break
		}
		v, unit = v/1000, u
	}
	if unit == "" {
		return fmt.Sprintf("%d", n)
	}
	return fmt.Sprintf("%.1f%s", v, unit)
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}
