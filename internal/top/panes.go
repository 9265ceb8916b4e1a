package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/progress"
)

// tenantLines draws n lines, those that have the most to do first.
func (m *model) tenantLines(list []api.Tenant, n, w int) []string {
	if len(list) == 0 || n < min(len(list)+1, 3) { // a head with nothing below it says nothing
		return nil
	}
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b api.Tenant) int {
		return cmp.Or(cmp.Compare(b.Running, a.Running), cmp.Compare(b.Queued, a.Queued), cmp.Compare(a.Tenant, b.Tenant))
	})
	name := 6
	for i := range list {
		name = max(name, progress.Width(progress.Clean(list[i].Tenant)))
	}
	name = min(name, max(w/5, 6))
	bar := max(min(w-name-37, 40), 0)
	if w < 50 {
		bar = 0
	}
	head := progress.Fit("TENANT", name) + progress.FitRight("RUNS", 6) + progress.FitRight("QUEUED", 8)
	if bar > 0 {
		head += "  " + progress.Fit("SHARE", bar+13) + progress.FitRight("TODAY", 8)
	}
	lines := []string{m.opts.paint(progress.Cut(head, w), bold)}
	for i := range list {
		if i == n-2 && len(list) > n-1 {
			return append(lines, m.opts.paint(progress.Cut(fmt.Sprintf("… and %d more", len(list)-i), w), faint))
		}
		t := &list[i]
		line := progress.Fit(progress.Clean(t.Tenant), name) + progress.FitRight(fmt.Sprint(t.Running), 6) + progress.FitRight(fmt.Sprint(t.Queued), 8)
		if bar > 0 {
			line += "  " + m.shareOf(t, bar) + progress.FitRight(progress.Cost(t.Today.Usage), 8)
		}
		lines = append(lines, progress.Cut(line, w))
	}
	return lines
}

// shareOf draws a tenant's share in bar+13 cells.
func (m *model) shareOf(t *api.Tenant, bar int) string {
	if t.Share == nil {
		return progress.Fit("-", bar+13)
	}
	s := t.Share
	text := fmt.Sprintf("%3.0f%%", 100*s.Actual)
	if s.Target > 0 {
		text += fmt.Sprintf(" of %.0f%%", 100*s.Target)
	}
	return m.opts.paint(shareBar(s.Actual, s.Target, bar), cyan) + " " + progress.Fit(text, 12)
}

// shareBar draws parts of 1 in n cells: what was had, and a mark where the target is.
func shareBar(actual, target float64, n int) string {
	had := int(actual*float64(n) + 0.5)
	mark := -1
	if target > 0 {
		mark = min(int(target*float64(n)), n-1)
	}
	var b strings.Builder
	for i := range n {
		switch {
		case i == mark:
			b.WriteByte('|')
		case i < had:
			b.WriteString("█")
		default:
			b.WriteString("·")
		}
	}
	return b.String()
}

// workerLines draws n lines, those that have a problem or work first.
func (m *model) workerLines(list []api.Worker, n, w int) []string {
	if len(list) == 0 || n < min(len(list)+1, 3) { // a head with nothing below it says nothing
		return nil
	}
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b api.Worker) int {
		return cmp.Or(cmp.Compare(b.Running, a.Running), cmp.Compare(workerRank(&b), workerRank(&a)), cmp.Compare(a.Kind, b.Kind))
	})
	name := 6
	for i := range list {
		name = max(name, progress.Width(progress.Clean(list[i].Kind)))
	}
	name = min(name, max(w/5, 6))
	lines := []string{m.opts.paint(progress.Cut(progress.Fit("WORKER", name)+progress.FitRight("RUNS", 8)+"  "+progress.Fit("BREAKER", 10)+" NOTE", w), bold)}
	for i := range list {
		if i == n-2 && len(list) > n-1 {
			return append(lines, m.opts.paint(progress.Cut(fmt.Sprintf("… and %d more", len(list)-i), w), faint))
		}
		k := &list[i]
		runs := fmt.Sprint(k.Running)
		if k.Max > 0 {
			runs = fmt.Sprintf("%d of %d", k.Running, k.Max)
		}
		state, note, s := m.breaker(k)
		line := progress.Fit(progress.Clean(k.Kind), name) + progress.FitRight(runs, 8) + "  " + m.opts.paint(progress.Fit(state, 10), s) + " " + note
		lines = append(lines, strings.TrimRight(progress.Cut(line, w), " "))
	}
	return lines
}

// workerRank is greater the worse a worker fares; one that is not installed is
// of no interest.
func workerRank(k *api.Worker) int {
	switch {
	case len(k.Isolations) > 0:
		return 3
	case slices.ContainsFunc(k.Circuits, func(c circuit) bool { return c.State != "closed" }):
		return 2
	case k.Problem != "":
		return 0
	}
	return 1
}

// breaker is the worst state of a worker's breakers, and why.
func (m *model) breaker(k *api.Worker) (state, note string, s style) {
	switch {
	case len(k.Isolations) > 0:
		i := &k.Isolations[0]
		return "isolated", progress.Clean(firstLine(i.Message)), red
	case k.Problem != "":
		return "-", progress.Clean(firstLine(k.Problem)), faint
	}
	state, s = "closed", green
	for i := range k.Circuits {
		c := &k.Circuits[i]
		if c.State == "closed" || state == "open" {
			continue
		}
		state, s = progress.Clean(c.State), yellow
		if c.State == "open" {
			s = red
		}
		note = fmt.Sprintf("%d of %d failed: %s", c.Failures, c.Requests, progress.Clean(firstLine(c.Cause)))
		if c.Model != "" {
			note = progress.Clean(c.Model) + ": " + note
		}
		if !c.OpenUntil.IsZero() {
			note = "until " + m.clock(c.OpenUntil) + "; " + note
		}
	}
	if note == "" && k.Model != "" {
		note = progress.Clean(k.Model)
	}
	return state, note, s
}
