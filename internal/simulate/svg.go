package simulate

import (
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Measures of the drawing, in pixels.
const (
	svgWidth   = 870
	plotLeft   = 52
	plotWidth  = 560
	plotHeight = 190
	plotRight  = plotLeft + plotWidth
	panelTop   = 56 // from a panel's top to its plot
	panelPitch = panelTop + plotHeight + 44
	legendRow  = 22
	labelPitch = 15 // between the labels beside a plot, at least
	svgSamples = 280
	svgTenants = 9 // as many as there are colours; the rest is drawn as one
)

// style keeps to what is readable on white and on black alike, and where the
// viewer says which of the two it is takes the better ink. The gaps between
// areas have the colour of the page.
const style = `
    text { font: 12px system-ui, -apple-system, "Segoe UI", "Helvetica Neue", "DejaVu Sans", sans-serif; fill: #767676; }
    .head { font-size: 17px; font-weight: 600; }
    .policy { font-size: 14px; font-weight: 600; }
    .number { font-variant-numeric: tabular-nums; }
    .grid { stroke: #808080; stroke-opacity: .35; stroke-width: 1; fill: none; }
    .area { stroke: #fff; stroke-width: .8; stroke-linejoin: round; }
    .target { stroke: #111; stroke-width: 1.2; stroke-dasharray: 5 4; fill: none; }
    .leader { stroke: #808080; stroke-opacity: .7; fill: none; }
    @media (prefers-color-scheme: light) { text { fill: #3b4148; } .head, .policy { fill: #1b1f24; } }
    @media (prefers-color-scheme: dark) { text { fill: #b4bcc6; } .head, .policy { fill: #eef1f4; } .area { stroke: #15181c; } }
`

// palette is that of Okabe and Ito (Color Universal Design, 2008), which people
// with any colour vision can tell apart, without its black.
func palette() []string {
	return []string{"#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#8c6bb1", "#8a8a8a"}
}

// SVG draws the results of one workload: for each policy the tenants' shares
// over time, stacked, with their targets as dashed lines. The drawing is one
// file without scripts, fonts or references of its own.
func SVG(out io.Writer, w *Workload, results []*Result) error {
	d := drawing{}
	groups := groupsOf(w, results)
	legendRows := d.legendRows(groups)
	top := 50 + legendRows*legendRow
	height := top + len(results)*panelPitch + 8
	d.line(`<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-labelledby="title desc" viewBox="0 0 %d %d" width="%d" height="%d">`, svgWidth, height, svgWidth, height)
	d.line(`  <title id="title">%s</title>`, escape("Shares over time: "+w.Name))
	d.line(`  <desc id="desc">%s</desc>`, escape(describe(results)))
	d.line("  <style>%s  </style>", style)
	d.line(`  <text class="head" x="%d" y="28">%s</text>`, plotLeft, escape(fmt.Sprintf("%s: %s, seed %d", w.Name, plural(w.Slots, "slot"), w.Seed)))
	d.legend(groups, 52)
	for i, r := range results {
		d.panel(r, groups, top+i*panelPitch)
	}
	d.line("</svg>")
	_, err := io.WriteString(out, d.b.String())
	return err
}

// group is a tenant, or the small ones together, with one colour in all panels.
type group struct {
	name    string
	colour  string
	members []int
}

func groupsOf(w *Workload, results []*Result) []group {
	n := len(w.tenants)
	alone := make([]int, n)
	for i := range alone {
		alone[i] = i
	}
	if n > svgTenants {
		alone = largest(results[0], svgTenants-1)
	}
	var groups []group
	var others []int
	for i := range n {
		if slices.Contains(alone, i) {
			groups = append(groups, group{string(w.tenants[i].Name), palette()[len(groups)], []int{i}})
		} else {
			others = append(others, i)
		}
	}
	if len(others) > 0 {
		groups = append(groups, group{plural(len(others), "other"), palette()[svgTenants-1], others})
	}
	return groups
}

// describe says in words what the drawing shows.
func describe(results []*Result) string {
	var b strings.Builder
	for _, r := range results {
		fmt.Fprintf(&b, "Policy %s, shares of %s, %s, Jain's index %.4f:", r.Policy, r.Measure.words(), short(r.Duration), r.Jain)
		for i := range r.Tenants {
			t := &r.Tenants[i]
			fmt.Fprintf(&b, " %s %s of a target of %s", t.Tenant, percent(t.Actual), percent(t.Target))
			if t.Starved {
				b.WriteString(" (starved)")
			}
			b.WriteByte(",;"[min(1, (i+1)/len(r.Tenants))])
		}
		b.WriteByte(' ')
	}
	return strings.TrimRight(strings.ReplaceAll(b.String(), "; ", ". "), " ")
}

type drawing struct{ b strings.Builder }

func (d *drawing) line(format string, args ...any) { fmt.Fprintf(&d.b, format+"\n", args...) }

// legendAt returns where the entries of the legend stand: one after the other,
// in as many rows as they need.
func legendAt(groups []group) (x, row []int) {
	at, n := plotLeft, 0
	for _, g := range groups {
		width := 34 + 7*len(g.name)
		if at > plotLeft && at+width > svgWidth-8 {
			at, n = plotLeft, n+1
		}
		x, row = append(x, at), append(row, n)
		at += width
	}
	return x, row
}

func (d *drawing) legendRows(groups []group) int {
	_, row := legendAt(append(slices.Clone(groups), group{name: "target"}))
	return row[len(row)-1] + 1
}

func (d *drawing) legend(groups []group, top int) {
	x, row := legendAt(append(slices.Clone(groups), group{name: "target"}))
	d.line(`  <g>`)
	for i, g := range groups {
		y := top + row[i]*legendRow
		d.line(`    <rect x="%d" y="%d" width="12" height="12" rx="2" fill="%s"/><text x="%d" y="%d">%s</text>`, x[i], y-10, g.colour, x[i]+18, y, escape(g.name))
	}
	last := len(groups)
	y := top + row[last]*legendRow
	d.line(`    <path class="leader" stroke-width="1.5" stroke-dasharray="4 3" d="M%d %dh14"/><text x="%d" y="%d">target</text>`, x[last], y-4, x[last]+20, y)
	d.line(`  </g>`)
}

// panel draws one policy.
func (d *drawing) panel(r *Result, groups []group, top int) {
	d.line(`  <g>`)
	starved := ""
	if n := r.starved(); n > 0 {
		starved = fmt.Sprintf(" · %s starved", plural(n, "tenant"))
	}
	d.line(`    <text x="%d" y="%d"><tspan class="policy">%s</tspan><tspan dx="12">%s</tspan></text>`, plotLeft, top+22, escape(r.Policy),
		escape(fmt.Sprintf("Jain's index %.4f · %.4g jobs an hour%s", r.Jain, r.PerHour, starved)))
	d.line(`    <text x="%d" y="%d">%s</text>`, plotLeft, top+42, escape(fmt.Sprintf("Shares of %s, each moment over the %s before", r.Measure.words(), short(r.series.window))))
	if r.Duration > 0 {
		plot := top + panelTop
		d.gridlines(r, plot)
		d.areas(r, groups, plot)
		d.labels(r, groups, plot)
	}
	d.line(`  </g>`)
}

func (d *drawing) gridlines(r *Result, top int) {
	for part := 0; part <= 4; part++ {
		y := top + plotHeight - plotHeight*part/4
		d.line(`    <path class="grid" d="M%d %d.5H%d"/><text class="number" x="%d" y="%d" text-anchor="end">%d%%</text>`, plotLeft, y, plotRight, plotLeft-8, y+4, 25*part)
	}
	for _, at := range ticks(r.Duration, 8) {
		x := plotLeft + float64(plotWidth)*float64(at)/float64(r.Duration)
		word := "0"
		if at > 0 {
			word = short(at)
		}
		d.line(`    <path class="grid" d="M%.1f %dv5"/><text class="number" x="%.1f" y="%d" text-anchor="middle">%s</text>`, x, top+plotHeight, x, top+plotHeight+19, word)
	}
}

// areas stacks the groups' shares from the bottom in the order of the legend.
func (d *drawing) areas(r *Result, groups []group, top int) {
	shares := r.series.over(svgSamples)
	y := func(part float64) float64 { return float64(top) + plotHeight*(1-min(part, 1)) }
	x := func(k int) float64 { return plotLeft + plotWidth*float64(k+1)/svgSamples }
	below := make([]float64, svgSamples)
	target := 0.0
	var targets strings.Builder
	for n, g := range groups {
		above := slices.Clone(below)
		for _, i := range g.members {
			for k, share := range shares[i] {
				above[k] += share
			}
			target += r.Tenants[i].Target
		}
		var path strings.Builder
		fmt.Fprintf(&path, "M%d %.1f", plotLeft, y(above[0]))
		for k := range above {
			fmt.Fprintf(&path, "L%.1f %.1f", x(k), y(above[k]))
		}
		for k := len(below) - 1; k >= 0; k-- {
			fmt.Fprintf(&path, "L%.1f %.1f", x(k), y(below[k]))
		}
		fmt.Fprintf(&path, "L%d %.1fZ", plotLeft, y(below[0]))
		d.line(`    <path class="area" fill="%s" d="%s"><title>%s</title></path>`, g.colour, path.String(), escape(g.name))
		below = above
		if n < len(groups)-1 {
			fmt.Fprintf(&targets, "M%d %.1fH%d", plotLeft, y(target), plotRight)
		}
	}
	if targets.Len() > 0 {
		d.line(`    <path class="target" d="%s"/>`, targets.String())
	}
}

// labels writes beside the plot what each group had of its target, at the
// height of its area's end or as near as the others' labels allow.
func (d *drawing) labels(r *Result, groups []group, top int) {
	last := r.series.shares(r.Duration-r.series.window, r.Duration)
	want := make([]float64, len(groups))
	below := 0.0
	for n, g := range groups {
		part := 0.0
		for _, i := range g.members {
			part += last[i]
		}
		want[n] = float64(top) + plotHeight*(1-below-part/2)
		below += part
	}
	for n, y := range spread(want, float64(top)+4, float64(top)+plotHeight-2) {
		g := groups[n]
		actual, target := 0.0, 0.0
		for _, i := range g.members {
			actual, target = actual+r.Tenants[i].Actual, target+r.Tenants[i].Target
		}
		d.line(`    <path class="leader" d="M%d %.1fL%d %.1f"/><rect x="%d" y="%.1f" width="8" height="8" rx="1.5" fill="%s"/><text class="number" x="%d" y="%.1f">%s</text>`,
			plotRight+2, want[n], plotRight+14, y, plotRight+17, y-4, g.colour, plotRight+31, y+4, escape(fmt.Sprintf("%s %s (%s)", clip(g.name), percent(actual), percent(target))))
	}
	d.line(`    <text x="%d" y="%d">had (target)</text>`, plotRight+31, top-14)
}

// spread moves labels apart that want to stand from the bottom up at heights
// closer than they are tall, and keeps them between low and high, the largest y.
func spread(want []float64, low, high float64) []float64 {
	at := slices.Clone(want)
	bottom := high
	for i := range at { // each at least one pitch above the one before
		at[i] = min(at[i], bottom)
		bottom = at[i] - labelPitch
	}
	top := low
	for i := len(at) - 1; i >= 0; i-- {
		at[i] = max(at[i], top)
		top = at[i] + labelPitch
	}
	return at
}

// clip shortens a name, which is ASCII, to what fits beside a plot. Names that
// are alike differ at their ends.
func clip(name string) string {
	const fits, end = 13, 6
	if len(name) <= fits {
		return name
	}
	return name[:fits-1-end] + "…" + name[len(name)-end:]
}

func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // into memory: cannot fail
	return b.String()
}
