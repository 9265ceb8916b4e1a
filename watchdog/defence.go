package watchdog

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/agentsched/agentsched/job"
)

// QueueMetrics is what the scheduler reports about jobs that could run now.
type QueueMetrics struct {
	Depth    int   `json:"depth"`
	OldestMS int64 `json:"oldest_ms"` // how long the oldest has waited since it could run
	// ByClass parts the two by class. Without it the whole counts.
	ByClass map[job.Class]ClassQueue `json:"by_class,omitempty"`
}

// ClassQueue is a class's part of the queue.
type ClassQueue struct {
	Depth    int   `json:"depth"`
	OldestMS int64 `json:"oldest_ms"`
}

// without returns depth and oldest wait of the classes that are not in shed.
func (q QueueMetrics) without(shed []job.Class) (depth int, oldest int64) {
	if len(q.ByClass) == 0 {
		return q.Depth, q.OldestMS
	}
	for class, part := range q.ByClass {
		if !slices.Contains(shed, class) {
			depth += part.Depth
			oldest = max(oldest, part.OldestMS)
		}
	}
	return depth, oldest
}

// Inputs is what a step of the defence looks at.
type Inputs struct {
	Metrics       Snapshot
	Queue         QueueMetrics
	MaxConcurrent int // runs at once, as configured; throttling takes a part of it
}

// Do says what an Action wants.
type Do string

const (
	// DoEnter: the stage was entered from the one below. Admit follows it by
	// itself; with Throttle, Concurrency is the limit from now on.
	DoEnter Do = "enter"
	// DoOpenBreaker: open the breaker of Kind. It heals by its own probes.
	DoOpenBreaker Do = "open_breaker"
	// DoEscalate: tell a person (Overload is the signal for Escalations).
	DoEscalate Do = "escalate"
	// DoRelax: the stage was entered from the one above.
	DoRelax Do = "relax"
)

// Action is one thing that a step wants done.
type Action struct {
	Do          Do             `json:"do"`
	Stage       Stage          `json:"stage"` // the stage in force
	Kind        job.WorkerKind `json:"kind,omitempty"`
	Concurrency int            `json:"concurrency,omitempty"` // runs at once; 0: as configured
	Evidence    string         `json:"evidence"`
}

// Defence moves between the stages. It climbs and descends one stage at a
// time, and stays in each for its dwell time at least, so that it does not
// flap. It is safe for concurrent use.
type Defence struct {
	mu      sync.Mutex // guards what follows
	cfg     DefenceConfig
	stage   Stage
	changed time.Time // when the stage was entered; zero: at the start
	now     time.Time // of the last step
	max     int       // Inputs.MaxConcurrent of the last step
	queue   bool      // the queue is what asks for the stage
	why     string    // the evidence of the last change
	// opened are the kinds whose breaker was opened since OpenBreaker was entered.
	opened map[job.WorkerKind]time.Time
	last   time.Time // when the last of them was
}

// NewDefence returns a defence in Normal. cfg must be valid.
func NewDefence(cfg DefenceConfig) *Defence {
	return &Defence{cfg: cfg, opened: map[job.WorkerKind]time.Time{}}
}

// Configure changes the settings from the next step on. cfg must be valid.
func (d *Defence) Configure(cfg DefenceConfig) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cfg = cfg
}

// Stage returns the stage in force.
func (d *Defence) Stage() Stage {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stage
}

// Evidence returns why the stage was entered; "" at Normal.
func (d *Defence) Evidence() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stage == Normal {
		return ""
	}
	return d.why
}

// Concurrency returns how many runs may be under way at once; 0: as configured.
func (d *Defence) Concurrency() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.concurrency()
}

// Step looks at the inputs at now and returns what is to be done. It is to be
// called regularly, some times within the shortest dwell time.
func (d *Defence) Step(now time.Time, in Inputs) []Action {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.now, d.max = now, in.MaxConcurrent
	asks, holds := d.judge(in)
	var actions []Action
	if d.changed.IsZero() || now.Sub(d.changed) >= d.cfg.Dwell.of(d.stage) {
		switch {
		case asks.stage > d.stage:
			actions = d.move(d.stage+1, asks)
		case holds.stage < d.stage:
			actions = d.move(d.stage-1, holds)
		}
	}
	if a, ok := d.openWorst(in.Metrics.Kinds); ok {
		actions = append(actions, a)
	}
	return actions
}

// cause is the metric that reaches furthest, and how far.
type cause struct {
	stage Stage
	gauge gauge // zero: none reaches anywhere
}

// judge returns what asks for the highest stage and what holds the highest.
//
// What is measured of runs is old news when none ends. It leads to a further stage
// only if a run has spoken for that since this one was entered, and holds the stage
// no longer than a breaker stays open without a probe: then the stage gives way
// to the one below, where more may begin, and the next bad run leads up again.
func (d *Defence) judge(in Inputs) (asks, holds cause) {
	for _, g := range d.cfg.gauges(in) {
		if !g.known {
			continue
		}
		asked, held := g.ladder.reach(g.value)
		if g.last != nil && d.now.Sub(*g.last) >= max(d.cfg.OpenFor.Std(), d.cfg.Dwell.of(d.stage)) {
			continue
		}
		if asked > asks.stage && (g.last == nil || g.last.After(d.changed)) {
			asks = cause{asked, g}
		}
		if held > holds.stage {
			holds = cause{held, g}
		}
	}
	if holds.stage > Normal {
		d.queue = holds.gauge.name == "queue_oldest_ms" || holds.gauge.name == "queue_depth"
	}
	return asks, holds
}

func (d *Defence) move(to Stage, why cause) []Action {
	from := d.stage
	d.stage, d.changed = to, d.now
	d.why = why.words(from, to)
	a := Action{Do: DoEnter, Stage: to, Concurrency: d.concurrency(), Evidence: d.why}
	if to < from {
		a.Do = DoRelax
	}
	if to < OpenBreaker {
		clear(d.opened)
	}
	actions := []Action{a}
	if to == Escalate {
		actions = append(actions, Action{Do: DoEscalate, Stage: to, Concurrency: a.Concurrency, Evidence: a.Evidence})
	}
	return actions
}

// words says why the stage changed.
func (c cause) words(from, to Stage) string {
	switch {
	case to > from:
		return fmt.Sprintf("%s is %s; %s begins at %s", c.gauge.name, plain(c.gauge.value), c.stage, plain(c.gauge.ladder.bands()[c.stage].Enter))
	case c.stage == Normal:
		return fmt.Sprintf("no metric requires %s or a lower stage any more", from)
	default:
		return fmt.Sprintf("no metric requires %s any more; %s is %s, and %s ends at %s", from, c.gauge.name, plain(c.gauge.value), c.stage, plain(c.gauge.ladder.bands()[c.stage].Leave))
	}
}

// plain writes a number without an exponent, which bytes would get.
func plain(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

// openWorst picks the sickest kind, in OpenBreaker and above: one in each
// dwell time of OpenBreaker, and each once. Overload alone is no kind's fault,
// so there may be none.
func (d *Defence) openWorst(kinds map[job.WorkerKind]KindSnapshot) (Action, bool) {
	if d.stage < OpenBreaker || len(d.opened) > 0 && d.now.Sub(d.last) < d.cfg.Dwell.OpenBreaker.Std() {
		return Action{}, false
	}
	worst := job.WorkerKind("")
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		sick := kinds[kind].Sick
		if _, done := d.opened[kind]; done || sick.Of < int64(d.cfg.MinRuns) || sick.Ratio < d.cfg.SickRatio {
			continue
		}
		if w := kinds[worst].Sick; worst == "" || cmp.Or(cmp.Compare(sick.Ratio, w.Ratio), cmp.Compare(sick.Of, w.Of)) > 0 {
			worst = kind
		}
	}
	if worst == "" {
		return Action{}, false
	}
	d.opened[worst], d.last = d.now, d.now
	sick := kinds[worst].Sick
	return Action{Do: DoOpenBreaker, Stage: d.stage, Kind: worst, Concurrency: d.concurrency(), Evidence: fmt.Sprintf(
		"%d of the last %d runs of %s crashed, hung or met a failing provider", sick.Count, sick.Of, worst)}, true
}

// concurrency is how many runs may be under way at once; 0: as configured.
func (d *Defence) concurrency() int {
	if d.stage < Throttle || d.max <= 0 {
		return 0
	}
	return max(int(float64(d.max)*d.cfg.ThrottleRatio), 1)
}
