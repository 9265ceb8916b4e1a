package simulate

import (
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"
)

// short writes a duration in its two largest units, e.g. 2h5m, 3m20s, 1.5s.
func short(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return trimZero(d.Round(time.Second).String())
	case d < 2*day:
		return trimZero(d.Round(time.Minute).String())
	}
	d = d.Round(time.Hour)
	text := fmt.Sprintf("%dd", d/day)
	if hours := d % day / time.Hour; hours > 0 {
		text += fmt.Sprintf("%dh", hours)
	}
	return text
}

// trimZero cuts the units that are 0 off the end of a duration's text.
func trimZero(text string) string {
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = text[:len(text)-2]
		}
	}
	return text
}

func percent(part float64) string { return fmt.Sprintf("%.1f%%", 100*part) }

// points writes a difference of two shares, with its sign.
func points(part float64) string {
	if math.Abs(part) < 0.0005 {
		return "0.0%" // not -0.0%
	}
	return fmt.Sprintf("%+.1f%%", 100*part)
}

// ticks returns the round moments of an axis that has room for at most n steps.
func ticks(length time.Duration, n int) []time.Duration {
	step := niceStep(length, n)
	var all []time.Duration
	for at := time.Duration(0); at <= length; at += step {
		all = append(all, at)
	}
	return all
}

func niceStep(length time.Duration, n int) time.Duration {
	const day = 24 * time.Hour
	for _, step := range []time.Duration{
		time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond,
		time.Second, 5 * time.Second, 15 * time.Second, 30 * time.Second,
		time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute,
		time.Hour, 2 * time.Hour, 3 * time.Hour, 4 * time.Hour, 6 * time.Hour, 12 * time.Hour,
		day, 2 * day, 7 * day, 14 * day, 28 * day,
	} {
		if length <= step*time.Duration(n) {
			return step
		}
	}
	days := math.Ceil(length.Hours() / 24 / float64(n) / 100)
	return time.Duration(days) * 100 * day
}

// grid writes rows of cells, the first column to the left, numbers to the
// right; paint says how a cell is shown once it has its width.
func grid(rows [][]string, paint func(row, column int, cell string) string) string {
	var width []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(width) {
				width = append(width, 0)
			}
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for r, row := range rows {
		line := ""
		for i, cell := range row {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell))
			if i > 0 {
				line += "  " + pad + paint(r, i, cell)
			} else {
				line += paint(r, i, cell) + pad
			}
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return b.String()
}
