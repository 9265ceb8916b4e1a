package telemetry

import (
	"slices"
	"sync"

	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/job"
)

// maxNames is how many tenants, workers and models get labels of their own: the
// first that are met, and maxNodes how many nodes do. The others share the label other.
const (
	maxNames = 200
	maxNodes = 1000
	other    = "other"
)

// names are the label values that users make up.
type names struct {
	redact                          func(string) string
	tenants, workers, models, nodes bounded
}

func newNames(redact func(string) string) *names {
	n := &names{redact: redact}
	n.tenants.most, n.workers.most, n.models.most, n.nodes.most = maxNames, maxNames, maxNames, maxNodes
	return n
}

func (n *names) tenant(t job.Tenant) string     { return n.tenants.label(string(t), n.redact) }
func (n *names) worker(w job.WorkerKind) string { return n.workers.label(string(w), n.redact) }
func (n *names) model(m string) string          { return n.models.label(m, n.redact) }

func (n *names) node(name string) string { return n.nodes.label(name, n.redact) }

// bounded are label values, by the names that they stand for.
type bounded struct {
	most   int // how many there may be
	mu     sync.RWMutex
	labels map[string]string
}

func (b *bounded) label(name string, redact func(string) string) string {
	if name == "" {
		return "" // no name takes no room
	}
	b.mu.RLock()
	label, known := b.labels[name]
	full := len(b.labels) >= b.most
	b.mu.RUnlock()
	switch {
	case known:
		return label
	case full:
		return other
	}
	label = redact(name)
	b.mu.Lock()
	defer b.mu.Unlock()
	if known, ok := b.labels[name]; ok {
		return known
	}
	if len(b.labels) >= b.most {
		return other
	}
	if b.labels == nil {
		b.labels = map[string]string{}
	}
	b.labels[name] = label
	return label
}

// oneOf returns value if it is of the list or "", else other: some come from
// programs outside.
func oneOf[S ~string](value S, list []S) string {
	if value == "" || slices.Contains(list, value) {
		return string(value)
	}
	return other
}

func errorClass(c job.ErrorClass) string { return oneOf(c, job.ErrorClasses()) }

func reasons() []job.Reason {
	return []job.Reason{job.QueueStall, job.CircuitOpen, job.RateLimited, job.GlobalShed, job.FatalMode, job.WorkspaceBusy, job.LimitExceeded}
}

func eventKinds() []job.EventKind {
	return []job.EventKind{
		job.EventState, job.EventSession, job.EventText, job.EventCommand, job.EventFile, job.EventTool,
		job.EventUsage, job.EventStep, job.EventRetry, job.EventWarning, job.EventError, job.EventLog, job.EventNetwork,
	}
}

func causes() []isolation.Cause {
	return []isolation.Cause{
		isolation.CauseWorkerCrashes, isolation.CauseGhost, isolation.CauseLatestWins, isolation.CauseCoreCrashes,
		isolation.CauseDisk, isolation.CauseClock, isolation.CauseOverload, isolation.CauseUsageLimit, isolation.CauseTrigger, isolation.CausePaused,
	}
}
