package top

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/progress"
	"github.com/agentsched/agentsched/job"
)

type circuit = api.Circuit

// render draws a frame of at most height lines, each of at most width cells.
func (m *model) render() string {
	w, h := max(m.width, 10), max(m.height, 2)
	var lines []string
	switch m.mode {
	case reading:
		lines = m.logLines(w)
	case helping:
		lines = append(m.header(w), "")
		for _, l := range helpLines {
			lines = append(lines, progress.Cut(l, w))
		}
	default:
		lines = m.overview(w, h)
	}
	if len(lines) > h-1 {
		lines = lines[:h-1]
	}
	for len(lines) < h-1 {
		lines = append(lines, "")
	}
	return strings.Join(append(lines, m.footer(w)), "\n")
}

// overview divides the screen: a header, tenants and workers in what the jobs can
// spare, the jobs.
func (m *model) overview(w, h int) []string {
	lines := m.header(w)
	if h < 10 {
		lines = lines[:min(len(lines), max(h-5, 1))]
	}
	top := m.upper(w, h)
	lines = append(lines, top...)
	if len(top) > 0 || h >= 12 {
		lines = append(lines, "")
	}
	return append(lines, m.jobLines(h-1-len(lines), w)...)
}

// jobRoom is how many jobs a page has.
func (m *model) jobRoom() int {
	w, h := max(m.width, 10), max(m.height, 2)
	return max(h-4-len(m.header(w))-len(m.upper(w, h)), 1)
}

// beside is the width from which tenants and workers stand beside each other.
const beside = 120

// upper draws the tenants and the workers.
func (m *model) upper(w, h int) []string {
	o := &m.picture.Overview
	if !m.seen || h < 14 {
		return nil
	}
	// What the jobs leave free, and at least so many: the blank lines and the
	// header are not among them.
	spare := max(h/2-5, h-9-len(m.shown()))
	if w >= beside {
		left := (w - 3) / 2
		a := m.tenantLines(o.Tenants, min(spare, len(o.Tenants)+1), left)
		b := m.workerLines(m.picture.Workers, min(spare, len(m.picture.Workers)+1), w-3-left)
		lines := []string{""}
		for i := range max(len(a), len(b)) {
			line := strings.Repeat(" ", left)
			if i < len(a) {
				line = progress.Fit(a[i], left)
			}
			if i < len(b) {
				line += "   " + b[i]
			}
			lines = append(lines, strings.TrimRight(line, " "))
		}
		if len(lines) == 1 {
			return nil
		}
		return lines
	}
	tenants := min(len(o.Tenants)+1, max(spare/2, 2))
	workers := min(len(m.picture.Workers)+1, spare-tenants)
	tenants = min(len(o.Tenants)+1, spare-workers)
	var lines []string
	for _, part := range [][]string{m.tenantLines(o.Tenants, tenants, w), m.workerLines(m.picture.Workers, workers, w)} {
		if len(part) > 0 {
			lines = append(append(lines, ""), part...)
		}
	}
	return lines
}

// header says in up to four lines how everything stands.
func (m *model) header(w int) []string {
	first := m.opts.paint("agentsched", bold)
	if m.opts.Name != "" {
		first += " on " + progress.Clean(m.opts.Name)
	}
	o := &m.picture.Overview
	if m.seen {
		first += fmt.Sprintf(" %s, up %s", progress.Clean(o.Version), spanText(m.now.Sub(o.Started)))
		if o.Stopping {
			first += m.opts.paint(", about to end", yellow)
		}
	}
	if m.lost != "" {
		state := fmt.Sprintf("no connection for %s, trying again: %s", spanText(m.now.Sub(m.lostAt)), m.lost)
		first += "  " + m.opts.paint(state, bold+";"+red)
	}
	if !m.seen {
		return []string{progress.Cut(first, w)}
	}
	return []string{edges(first, m.clock(m.now), w), progress.Cut(m.queueLine(), w), progress.Cut(m.moneyLine(), w), progress.Cut(m.healthLine(), w)}
}

// edges puts one text on the left and one on the right, if there is room.
func edges(left, right string, w int) string {
	if progress.Width(left)+2+progress.Width(right) > w {
		return progress.Cut(left, w)
	}
	return progress.Fit(left, w-progress.Width(right)) + right
}

// between stands between two parts of a line.
const between = " · "

func (m *model) queueLine() string {
	o := &m.picture.Overview
	c := &o.Census
	running := fmt.Sprintf("%d running", o.Running)
	if o.MaxAtOnce > 0 {
		running = fmt.Sprintf("%d of %d running", o.Running, o.MaxAtOnce)
	}
	parts := []string{m.opts.paint(running, bold), fmt.Sprintf("%d pending", c.Queued+c.Held)}
	if c.Approval > 0 {
		parts = append(parts, m.opts.paint(fmt.Sprintf("%d waiting_approval", c.Approval), yellow))
	}
	if c.DeadLetters > 0 {
		parts = append(parts, m.opts.paint(fmt.Sprintf("%d dead", c.DeadLetters), red))
	}
	done, failed, over := 0, 0, time.Hour
	for _, t := range o.Throughput {
		done, failed = done+t.Succeeded, failed+t.Failed
	}
	if len(o.Throughput) > 0 {
		over = max(o.At.Sub(o.Throughput[0].At), time.Minute)
	}
	rate := float64(done+failed) / over.Hours()
	parts = append(parts, fmt.Sprintf("last hour: %d completed, %d failed, %.3g/h", done, failed, rate))
	return strings.Join(parts, between)
}

func (m *model) moneyLine() string {
	o := &m.picture.Overview
	parts := []string{"today " + m.opts.paint(progress.Cost(o.Today.Usage), bold), progress.Count(o.Today.Usage.Tokens()) + " tokens"}
	for _, b := range o.Budgets {
		who := "all"
		if b.Tenant != "" {
			who = progress.Clean(b.Tenant)
		}
		add := func(text string, part float64) {
			text = who + ": " + text + " in " + windowText(b.Window)
			switch {
			case part >= 1:
				text = m.opts.paint(text, red)
			case part >= 0.8:
				text = m.opts.paint(text, yellow)
			}
			parts = append(parts, text)
		}
		if b.MaxUSD > 0 {
			add(fmt.Sprintf("$%.2f of $%.2f", b.SpentUSD, b.MaxUSD), b.SpentUSD/b.MaxUSD)
		}
		if b.MaxTokens > 0 {
			add(fmt.Sprintf("%s of %s tokens", progress.Count(int64(b.Tokens)), progress.Count(int64(b.MaxTokens))), b.Tokens/b.MaxTokens)
		}
	}
	if len(o.Waiting) > 0 {
		parts = append(parts, fmt.Sprintf("%d %s", o.Waiting[0].Jobs, progress.Clean(firstLine(o.Waiting[0].Why))))
	}
	return strings.Join(parts, between)
}

// windowText is a length of time without what is zero of it, e.g. "24h".
func windowText(d job.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// healthLine is about the cores and the stage of each one's watchdog, and what is
// out of use.
func (m *model) healthLine() string {
	o := &m.picture.Overview
	var parts []string
	for i := range o.Cores {
		c := &o.Cores[i]
		text, s := fmt.Sprintf("core %d %s", c.Index, progress.Clean(fmt.Sprint(c.State))), plain
		if c.Stage != "" {
			text += " stage " + progress.Clean(c.Stage)
			if c.Stage != "normal" {
				s = yellow
			}
		}
		if fmt.Sprint(c.State) != "up" {
			s = red
		}
		parts = append(parts, m.opts.paint(text, s))
	}
	if len(parts) == 0 {
		parts = append(parts, m.opts.paint("no core is up", red))
	}
	for _, i := range o.Isolations {
		parts = append(parts, m.opts.paint("isolated: "+progress.Clean(i.Scope), red))
	}
	open := slices.DeleteFunc(slices.Clone(o.Circuits), func(c circuit) bool { return c.State == "closed" })
	for _, c := range open {
		parts = append(parts, m.opts.paint(circuitName(&c)+" "+progress.Clean(c.State), yellow))
	}
	coreOut := slices.ContainsFunc(o.Cores, func(c api.Core) bool { return c.IsolatedUntil.After(m.now) })
	if len(o.Isolations) == 0 && len(open) == 0 && !coreOut {
		parts = append(parts, "nothing is isolated, no circuit is open")
	}
	if len(o.Alerts) > 0 {
		a := &o.Alerts[0]
		parts = append(parts, fmt.Sprintf("%s %s: %s", m.clock(a.At), progress.Clean(a.Kind), progress.Clean(firstLine(a.Message))))
	}
	return strings.Join(parts, between)
}

// logRoom is how many lines of a log are on the screen.
func (m *model) logRoom() int { return max(m.height-2, 1) }

func (m *model) logLines(w int) []string {
	l := &m.log
	end := len(l.lines) - l.above
	from := max(end-m.logRoom(), 0)
	where := "follows the end"
	if l.above > 0 {
		where = fmt.Sprintf("lines %d to %d of %d", l.cut+from+1, l.cut+end, l.cut+len(l.lines))
	}
	if l.err != "" {
		where = "cannot be read: " + l.err
	}
	lines := []string{m.opts.paint(edges("log of "+l.name, where, w), bold)}
	if len(l.lines) == 0 && l.err == "" {
		return append(lines, m.opts.paint(progress.Cut("nothing has happened yet", w), faint))
	}
	for _, line := range l.lines[from:end] {
		lines = append(lines, progress.Cut(line, w))
	}
	return lines
}

// footer is what the person is asked or told, or the keys.
func (m *model) footer(w int) string {
	switch {
	case m.say != "" && m.mode != filtering:
		s := bold
		if m.bad {
			s += ";" + red
		}
		return m.opts.paint(progress.Cut(m.say, w), s)
	case m.mode == confirming:
		return m.opts.paint(progress.Cut(m.ask.text, w), bold)
	case m.mode == filtering:
		return typing("/", m.input, w)
	case m.mode == rejecting:
		return typing("what is to be done better? ", m.input, w)
	case m.mode == reading:
		return m.opts.paint(progress.Cut("esc back  ↑↓ PgUp PgDn scroll  End follows", w), faint)
	case m.mode == helping:
		return m.opts.paint(progress.Cut("any key goes back", w), faint)
	}
	keys := "q quit  ↑↓ choose  enter log  c cancel  a approve  r reject  p pause  / filter  s sort  ? help"
	if m.filter != "" {
		keys = "filter: " + progress.Clean(m.filter) + "  esc clears it  " + keys
	}
	return m.opts.paint(progress.Cut(keys, w), faint)
}

// typing shows the end of what is typed behind a prompt, with a cursor.
func typing(prompt, input string, w int) string {
	room := max(w-progress.Width(prompt)-1, 1)
	for r := []rune(input); progress.Width(input) > room; input = string(r) {
		r = r[1:]
	}
	return progress.Cut(prompt+input+"_", w)
}

func circuitName(c *circuit) string {
	name := progress.Clean(c.Worker)
	if c.Model != "" {
		name += ":" + progress.Clean(c.Model)
	}
	return name
}
