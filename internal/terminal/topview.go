package terminal

import "strings"

// render draws a frame of at most height lines, each of at most width cells.
func (m *topModel) render() string {
	w, h := max(m.width, 10), max(m.height, 2)
	var lines []string
	switch m.mode {
	case reading:
		lines = m.log.draw(&m.scene, h-2, w)
	case helping:
		lines = append(m.scene.header(w), "")
		for _, l := range helpLines {
			lines = append(lines, Cut(l, w))
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
func (m *topModel) overview(w, h int) []string {
	lines := m.scene.header(w)
	if h < 10 {
		lines = lines[:min(len(lines), max(h-5, 1))]
	}
	top := m.upper(w, h)
	lines = append(lines, top...)
	if len(top) > 0 || h >= 12 {
		lines = append(lines, "")
	}
	return append(lines, m.jobs.draw(&m.scene, h-1-len(lines), w)...)
}

// jobRoom is how many jobs a page has.
func (m *topModel) jobRoom() int {
	w, h := max(m.width, 10), max(m.height, 2)
	return max(h-4-len(m.scene.header(w))-len(m.upper(w, h)), 1)
}

// abreast is the width from which tenants and workers stand beside each other.
const abreast = 120

// upper draws the tenants and the workers.
func (m *topModel) upper(w, h int) []string {
	o := &m.scene.picture.Overview
	if !m.scene.seen || h < 14 {
		return nil
	}
	// What the jobs leave free, and at least so many: the blank lines and the
	// header are not among them.
	spare := max(h/2-5, h-9-len(m.jobs.shown(m.scene.picture.Jobs)))
	if w >= abreast {
		left := (w - 3) / 2
		a := m.scene.tenantLines(o.Tenants, min(spare, len(o.Tenants)+1), left)
		b := m.scene.workerLines(m.scene.picture.Workers, min(spare, len(m.scene.picture.Workers)+1), w-3-left)
		lines := []string{""}
		for i := range max(len(a), len(b)) {
			line := strings.Repeat(" ", left)
			if i < len(a) {
				line = Fit(a[i], left)
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
	workers := min(len(m.scene.picture.Workers)+1, spare-tenants)
	tenants = min(len(o.Tenants)+1, spare-workers)
	var lines []string
	for _, part := range [][]string{m.scene.tenantLines(o.Tenants, tenants, w), m.scene.workerLines(m.scene.picture.Workers, workers, w)} {
		if len(part) > 0 {
			lines = append(append(lines, ""), part...)
		}
	}
	return lines
}

// footer is what the person is asked or told, or the keys.
func (m *topModel) footer(w int) string {
	switch {
	case m.say != "" && m.mode != filtering:
		s := bold
		if m.bad {
			s += ";" + red
		}
		return m.scene.paint(Cut(m.say, w), s)
	case m.mode == confirming:
		return m.scene.paint(Cut(m.ask.text, w), bold)
	case m.mode == filtering:
		return m.input.line("/", w)
	case m.mode == rejecting:
		return m.input.line("comment: what should be improved? ", w)
	case m.mode == answering:
		return m.input.line(Cut(m.prompt, w/2), w)
	case m.mode == reading:
		return m.scene.paint(Cut("esc back  ↑↓ PgUp PgDn scroll  End follows", w), faint)
	case m.mode == helping:
		return m.scene.paint(Cut("any key goes back", w), faint)
	}
	if e := m.jobs.selected(m.scene.picture.Jobs); e != nil && m.jobs.asked[e.ID] != nil {
		keys := "a yes  r no  t talk"
		if len(m.jobs.asked[e.ID].Decisions) == 0 {
			keys = "a answer  t talk"
		}
		text := Clean(e.Spec.Name) + " asks: " + Asked(m.jobs.asked[e.ID])
		return m.scene.paint(edges(Cut(text, w-len(keys)-2), keys, w), yellow)
	}
	keys := "q quit  ↑↓ choose  enter log  t talk  a yes, approve  r no, reject  c cancel  p pause  / filter  s sort  ? help"
	if m.jobs.filter != "" {
		keys = "filter: " + Clean(m.jobs.filter) + "  esc clears it  " + keys
	}
	return m.scene.paint(Cut(keys, w), faint)
}
