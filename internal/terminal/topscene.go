package terminal

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/job"
)

type circuit = api.Circuit

// scene is what is known of the scheduler, and how it is drawn.
type scene struct {
	opts    TopOptions
	now     time.Time
	seen    bool // picture is one
	picture TopPicture
	at      time.Time // of the picture
	lost    string    // why nothing is heard; "" while all is well
	lostAt  time.Time
}

func (v *scene) paint(text string, s style) string { return paint(text, s, v.opts.Colour) }

func (v *scene) lose(err error) {
	if v.lost == "" {
		v.lostAt = v.now
	}
	v.lost = "no answer"
	if err != nil {
		v.lost = Clean(FirstLine(err.Error()))
	}
}

func (v *scene) apply(u *api.Update) {
	if u.Kind != api.UpdateJob {
		return
	}
	for i := range v.picture.Jobs {
		e := &v.picture.Jobs[i]
		if e.ID != u.Job {
			continue
		}
		if u.Entry != "" {
			e.State = u.Entry
		}
		if u.ExitKind != "" {
			e.ExitKind = u.ExitKind
		}
		if u.State != "" {
			e.Status = &job.Status{State: u.State, Waiting: u.Waiting, Worker: u.Worker, Note: u.Text}
		}
		if u.Usage != nil {
			e.Spent = *u.Usage
		}
		e.Attempts = max(e.Attempts, u.Attempt)
		if e.State == job.Dispatched && e.DispatchedAt == nil {
			at := u.Time
			e.DispatchedAt = &at
		}
		return
	}
}

// header says in up to four lines how everything stands.
func (v *scene) header(w int) []string {
	first := v.paint("agentsched", bold)
	if v.opts.Name != "" {
		first += " on " + Clean(v.opts.Name)
	}
	o := &v.picture.Overview
	if v.seen {
		first += fmt.Sprintf(" %s, up %s", Clean(o.Version), spanText(v.now.Sub(o.Started)))
		if o.Stopping {
			first += v.paint(", about to end", yellow)
		}
	}
	if v.lost != "" {
		state := fmt.Sprintf("no connection for %s, trying again: %s", spanText(v.now.Sub(v.lostAt)), v.lost)
		first += "  " + v.paint(state, bold+";"+red)
	}
	if !v.seen {
		return []string{Cut(first, w)}
	}
	return []string{edges(first, v.clock(v.now), w), Cut(v.queueLine(), w), Cut(v.moneyLine(), w), Cut(v.healthLine(), w)}
}

// between stands between two parts of a line.
const between = " · "

func (v *scene) queueLine() string {
	o := &v.picture.Overview
	c := &o.Census
	running := fmt.Sprintf("%d running", o.Running)
	if o.MaxAtOnce > 0 {
		running = fmt.Sprintf("%d of %d running", o.Running, o.MaxAtOnce)
	}
	parts := []string{v.paint(running, bold), fmt.Sprintf("%d pending", c.Queued+c.Held)}
	if c.Approval > 0 {
		parts = append(parts, v.paint(fmt.Sprintf("%d waiting_approval", c.Approval), yellow))
	}
	if c.DeadLetters > 0 {
		parts = append(parts, v.paint(fmt.Sprintf("%d dead", c.DeadLetters), red))
	}
	done, failed, over := 0, 0, time.Hour
	for _, t := range o.Throughput {
		done, failed = done+t.Succeeded, failed+t.Failed
	}
	if len(o.Throughput) > 0 {
		over = max(o.At.Sub(o.Throughput[0].At), time.Minute)
	}
	rate := float64(done+failed) / over.Hours()
	parts = append(parts, fmt.Sprintf("last hour: %d completed, %d failed, %s/h", done, failed, rateText(rate)))
	return strings.Join(parts, between)
}

// rateText is a rate, e.g. "0.25", "17.4" or "1250".
func rateText(v float64) string {
	if v < 999.5 {
		return fmt.Sprintf("%.3g", v)
	}
	return fmt.Sprintf("%.0f", v)
}

func (v *scene) moneyLine() string {
	o := &v.picture.Overview
	parts := []string{"today " + v.paint(Cost(o.Today.Usage), bold), Count(o.Today.Usage.Tokens()) + " tokens"}
	for _, b := range o.Budgets {
		who := "all"
		if b.Tenant != "" {
			who = Clean(b.Tenant)
		}
		add := func(text string, part float64) {
			text = who + ": " + text + " in " + windowText(b.Window)
			switch {
			case part >= 1:
				text = v.paint(text, red)
			case part >= 0.8:
				text = v.paint(text, yellow)
			}
			parts = append(parts, text)
		}
		if b.MaxUSD > 0 {
			add(fmt.Sprintf("$%.2f of $%.2f", b.SpentUSD, b.MaxUSD), b.SpentUSD/b.MaxUSD)
		}
		if b.MaxTokens > 0 {
			add(fmt.Sprintf("%s of %s tokens", Count(int64(b.Tokens)), Count(int64(b.MaxTokens))), b.Tokens/b.MaxTokens)
		}
	}
	if len(o.Waiting) > 0 {
		parts = append(parts, fmt.Sprintf("%d %s", o.Waiting[0].Jobs, Clean(FirstLine(o.Waiting[0].Why))))
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
func (v *scene) healthLine() string {
	o := &v.picture.Overview
	var parts []string
	for i := range o.Cores {
		c := &o.Cores[i]
		text, s := fmt.Sprintf("core %s %s", Clean(c.Name()), Clean(fmt.Sprint(c.State))), plain
		if c.Stage != "" {
			text += " stage " + Clean(c.Stage)
			if c.Stage != "normal" {
				s = yellow
			}
		}
		if fmt.Sprint(c.State) != "up" {
			s = red
		}
		parts = append(parts, v.paint(text, s))
	}
	if len(parts) == 0 {
		parts = append(parts, v.paint("no core is up", red))
	}
	for _, i := range o.Isolations {
		parts = append(parts, v.paint("isolated: "+Clean(i.Scope), red))
	}
	open := slices.DeleteFunc(slices.Clone(o.Circuits), func(c circuit) bool { return c.State == "closed" })
	for _, c := range open {
		parts = append(parts, v.paint(circuitName(&c)+" "+Clean(c.State), yellow))
	}
	coreOut := slices.ContainsFunc(o.Cores, func(c api.Core) bool { return c.IsolatedUntil.After(v.now) })
	if len(o.Isolations) == 0 && len(open) == 0 && !coreOut {
		parts = append(parts, "nothing is isolated, no circuit is open")
	}
	if len(o.Alerts) > 0 {
		a := &o.Alerts[0]
		parts = append(parts, fmt.Sprintf("%s %s: %s", v.clock(a.At), Clean(a.Kind), Clean(FirstLine(a.Message))))
	}
	return strings.Join(parts, between)
}

// tenantLines draws n lines, those that have the most to do first.
func (v *scene) tenantLines(list []api.Tenant, n, w int) []string {
	if len(list) == 0 || n < min(len(list)+1, 3) { // a head with nothing below it says nothing
		return nil
	}
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b api.Tenant) int {
		return cmp.Or(cmp.Compare(b.Running, a.Running), cmp.Compare(b.Queued, a.Queued), cmp.Compare(a.Tenant, b.Tenant))
	})
	name := min(widest(6, list, func(t api.Tenant) string { return Clean(t.Tenant) }), max(w/5, 6))
	bar := max(min(w-name-37, 40), 0)
	if w < 50 {
		bar = 0
	}
	line := func(tenant, runs, queued, share, today string) string {
		cells := []cell{{text: tenant, width: name}, {text: runs, width: 6, right: true}, {text: queued, width: 8, right: true}}
		if bar > 0 {
			cells = append(cells, cell{width: 2}, cell{text: share, width: bar + 13}, cell{text: today, width: 8, right: true})
		}
		return Cut(row("", false, cells...), w)
	}
	var lines []string
	for i := range list {
		t := &list[i]
		lines = append(lines, line(Clean(t.Tenant), fmt.Sprint(t.Running), fmt.Sprint(t.Queued), v.shareOf(t, bar), Cost(t.Today.Usage)))
	}
	return listed(line("TENANT", "RUNS", "QUEUED", "SHARE", "TODAY"), lines, n, w, v.opts.Colour)
}

// shareOf draws a tenant's share in bar+13 cells.
func (v *scene) shareOf(t *api.Tenant, bar int) string {
	if t.Share == nil {
		return Fit("-", bar+13)
	}
	s := t.Share
	text := fmt.Sprintf("%3.0f%%", 100*s.Actual)
	if s.Target > 0 {
		text += fmt.Sprintf(" of %.0f%%", 100*s.Target)
	}
	return v.paint(shareBar(s.Actual, s.Target, bar), cyan) + " " + Fit(text, 12)
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
func (v *scene) workerLines(list []api.Worker, n, w int) []string {
	if len(list) == 0 || n < min(len(list)+1, 3) { // a head with nothing below it says nothing
		return nil
	}
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b api.Worker) int {
		return cmp.Or(cmp.Compare(b.Running, a.Running), cmp.Compare(workerRank(&b), workerRank(&a)), cmp.Compare(a.Kind, b.Kind))
	})
	name := min(widest(6, list, func(k api.Worker) string { return Clean(k.Kind) }), max(w/5, 6))
	line := func(worker, runs, state, note string, s style) string {
		return Cut(row("", v.opts.Colour, cell{text: worker, width: name}, cell{text: runs, width: 8, right: true}, cell{width: 2},
			cell{text: state, width: 10, style: s}, cell{width: 1}, cell{text: note, width: w}), w)
	}
	var lines []string
	for i := range list {
		k := &list[i]
		runs := fmt.Sprint(k.Running)
		if k.Max > 0 {
			runs = fmt.Sprintf("%d of %d", k.Running, k.Max)
		}
		state, note, s := v.breaker(k)
		lines = append(lines, line(Clean(k.Kind), runs, state, note, s))
	}
	return listed(line("WORKER", "RUNS", "BREAKER", "NOTE", plain), lines, n, w, v.opts.Colour)
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
func (v *scene) breaker(k *api.Worker) (state, note string, s style) {
	switch {
	case len(k.Isolations) > 0:
		i := &k.Isolations[0]
		return "isolated", Clean(FirstLine(i.Message)), red
	case k.Problem != "":
		return "-", Clean(FirstLine(k.Problem)), faint
	}
	state, s = "closed", green
	for i := range k.Circuits {
		c := &k.Circuits[i]
		if c.State == "closed" || state == "open" {
			continue
		}
		state, s = Clean(c.State), yellow
		if c.State == "open" {
			s = red
		}
		note = fmt.Sprintf("%d of %d failed: %s", c.Failures, c.Requests, Clean(FirstLine(c.Cause)))
		if c.Model != "" {
			note = Clean(c.Model) + ": " + note
		}
		if !c.OpenUntil.IsZero() {
			note = "until " + v.clock(c.OpenUntil) + "; " + note
		}
	}
	if note == "" && k.Model != "" {
		note = Clean(k.Model)
	}
	return state, note, s
}
func circuitName(c *circuit) string {
	name := Clean(c.Worker)
	if c.Model != "" {
		name += ":" + Clean(c.Model)
	}
	return name
}

// clock is a time of day.
func (v *scene) clock(t time.Time) string { return t.In(v.opts.Zone).Format(time.TimeOnly) }
