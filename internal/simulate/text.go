package simulate

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"
)

// TextOptions say what the place can show that a text is printed on.
type TextOptions struct {
	Width  int  // columns; 0: 80
	ASCII  bool // no block characters
	Colour bool
}

// Text prints the results of one workload: a table and a chart for each policy,
// and the policies side by side.
func Text(out io.Writer, w *Workload, results []*Result, opts TextOptions) error {
	t := text{opts: opts}
	if t.opts.Width == 0 {
		t.opts.Width = 80
	}
	t.opts.Width = max(t.opts.Width, 40)
	t.line("%s: %s, seed %d", w.Name, plural(w.Slots, "slot"), w.Seed)
	for _, r := range results {
		t.result(r)
	}
	if len(results) > 1 {
		t.comparison(results)
	}
	t.notes(results)
	_, err := io.WriteString(out, t.b.String())
	return err
}

func plural(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}

type text struct {
	b    strings.Builder
	opts TextOptions
}

func (t *text) line(format string, args ...any) { fmt.Fprintf(&t.b, format+"\n", args...) }

func (t *text) result(r *Result) {
	t.line("\n%s", t.bold(fmt.Sprintf("policy %s", r.Policy))+fmt.Sprintf(": shares of %s", r.Measure.words()))
	if !r.OwnTargets {
		t.line("It aims at no shares of its own: the targets are those of the tenants' weights.")
	}
	rows := [][]string{{"TENANT", "TARGET", "ACTUAL", "ERROR", "DONE", "WAITING", "WAIT", "P95", "LONGEST", "STARVED"}}
	for i := range r.Tenants {
		n := &r.Tenants[i]
		wait, p95, starved := "-", "-", "no"
		if n.Began > 0 {
			wait, p95 = short(n.MeanWait), short(n.P95Wait)
		}
		if n.Starved {
			starved = short(n.LongestUnserved)
		}
		rows = append(rows, []string{string(n.Tenant), percent(n.Target), percent(n.Actual), points(n.Error()), fmt.Sprint(n.Done), fmt.Sprint(n.Waiting()),
			wait, p95, short(n.LongestWait), starved})
	}
	t.b.WriteString(grid(rows, func(row, column int, cell string) string {
		if row > 0 && column == 9 && cell != "no" {
			return t.paint("31", cell)
		}
		return cell
	}))
	t.line("%s in %s: %.4g an hour; slots busy %s; Jain's index %.4f", plural(r.Done, "job"), short(r.Duration), r.PerHour, percent(r.Busy), r.Jain)
	if r.Duration > 0 {
		t.chart(r)
	}
}

// maxRows bounds a chart's height.
const maxRows = 20

// colours are those of the tenants, in turn: cyan, yellow, green, magenta, blue.
func colours() []string { return []string{"36", "33", "32", "35", "34"} }

// chart draws a row for each tenant, all to one scale.
func (t *text) chart(r *Result) {
	order := largest(r, maxRows)
	label := 0
	for _, i := range order {
		label = max(label, len(r.Tenants[i].Tenant))
	}
	label = min(label, t.opts.Width/3)
	width := t.opts.Width - label - 2
	shares := r.series.over(width)
	top := 0.0
	for _, i := range order {
		top = max(top, slices.Max(shares[i]))
	}
	top = scale(top)
	t.line("\nShares over time, each column of the %s before; full height is %.0f%%", short(r.series.window), 100*top)
	for k, i := range order {
		colour := colours()[k%len(colours())]
		name := string(r.Tenants[i].Tenant)
		lines := t.spark(shares[i], top, len(order))
		for n, line := range lines {
			at := ""
			if n == len(lines)-1 {
				at = name[:min(len(name), label)]
			}
			t.line("%-*s %s", label, at, t.frame(t.paint(colour, line)))
		}
	}
	t.line("%-*s %s", label, "", axis(r, width))
	if more := len(r.Tenants) - len(order); more > 0 {
		t.line("and %s with smaller shares", plural(more, "tenant"))
	}
}

// frame puts a row between its borders.
func (t *text) frame(row string) string {
	if t.opts.ASCII {
		return "|" + row
	}
	return "▕" + row
}

// largest returns the n tenants with the largest shares, in the order of the file.
func largest(r *Result, n int) []int {
	order := make([]int, len(r.Tenants))
	for i := range order {
		order[i] = i
	}
	if len(order) <= n {
		return order
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(max(r.Tenants[b].Actual, r.Tenants[b].Target), max(r.Tenants[a].Actual, r.Tenants[a].Target))
	})
	order = order[:n]
	slices.Sort(order)
	return order
}

// scale is the least round part of 1 that top fits below.
func scale(top float64) float64 {
	for _, round := range []float64{0.05, 0.1, 0.2, 0.25, 0.4, 0.5, 0.6, 0.75, 0.8, 0.9} {
		if top <= round {
			return round
		}
	}
	return 1
}

// spark draws shares as columns, in one or more lines from the top: two of
// blocks if there are few tenants.
func (t *text) spark(shares []float64, top float64, tenants int) []string {
	levels, height := []rune(" ▁▂▃▄▅▆▇█"), 1
	switch {
	case t.opts.ASCII:
		levels = []rune(" .:-=+*#%@")
	case tenants <= 8:
		height = 2
	}
	steps := len(levels) - 1
	lines := make([]string, height)
	for _, share := range shares {
		level := int(math.Round(share / top * float64(steps*height)))
		if share > 0.001 {
			level = max(level, 1) // little is not nothing
		}
		for n := range lines {
			below := (height - 1 - n) * steps
			lines[n] += string(levels[min(max(level-below, 0), steps)])
		}
	}
	for n := range lines {
		lines[n] = strings.TrimRight(lines[n], " ")
	}
	return lines
}

// axis writes the times below a chart, each centred under its column.
func axis(r *Result, width int) string {
	line := []rune(strings.Repeat(" ", width+1))
	end := 0
	for _, at := range ticks(r.Duration, max(width/12, 1)) {
		word := "0"
		if at > 0 {
			word = short(at)
		}
		column := int(float64(at)/float64(r.Duration)*float64(width)) - len(word)/2
		column = min(max(column, 0), len(line)-len(word))
		if column < end {
			continue
		}
		copy(line[column:], []rune(word))
		end = column + len(word) + 1
	}
	return strings.TrimRight(string(line), " ")
}

// comparison puts the policies side by side.
func (t *text) comparison(results []*Result) {
	t.line("\n%s", t.bold("side by side"))
	rows := [][]string{{"POLICY", "SHARES OF", "JAIN", "WORST ERROR", "JOBS/H", "BUSY", "LONGEST WAIT", "STARVED"}}
	for _, r := range results {
		worst, longest := 0.0, time.Duration(0)
		for i := range r.Tenants {
			n := &r.Tenants[i]
			if math.Abs(n.Error()) > math.Abs(worst) {
				worst = n.Error()
			}
			longest = max(longest, n.LongestWait)
		}
		who := "nobody"
		if n := r.starved(); n > 0 {
			who = plural(n, "tenant")
		}
		rows = append(rows, []string{r.Policy, string(r.Measure), fmt.Sprintf("%.4f", r.Jain), points(worst), fmt.Sprintf("%.4g", r.PerHour),
			percent(r.Busy), short(longest), who})
	}
	t.b.WriteString(grid(rows, func(_, _ int, cell string) string { return cell }))
}

func (t *text) notes(results []*Result) {
	t.line(`
TARGET: what an ideal server with the same weights would have given of the
same work (GPS, Parekh and Gallager 1993). WAIT and P95 are of the jobs that
began, LONGEST of all. STARVED: for so long, a tenth of the time or more, a job
of the tenant waited and none ran. Jain's index is (sum x)^2 / (n * sum x^2) of
x = actual / target: 1 is fair, 1/n is all for one (Jain, Chiu, Hawe,
DEC-TR-301, 1984).`)
	if slices.ContainsFunc(results, func(r *Result) bool { return r.Measure == Dominant }) {
		t.line("Dominant: the resource of which a tenant has the largest part (Ghodsi et al.,\nNSDI 2011).")
	}
}

func (t *text) bold(s string) string { return t.paint("1", s) }

func (t *text) paint(code, s string) string {
	if !t.opts.Colour {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}
