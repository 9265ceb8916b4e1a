package top

import (
	"fmt"
	"strings"
	"time"
)

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

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}
