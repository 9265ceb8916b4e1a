package telemetry

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/internal/supervisor"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/watchdog"
)

// status collects how the scheduler and its cores fare.
type status struct {
	status func() scheduler.Status
	names  *names
	now    func() time.Time
	core   coreMetrics

	running, stopping, ready, readyAge      *metric
	circuit, isolations                     *metric
	coreUp, restarts, inflight, stage       *metric
	concurrency, coreHeartbeat, teamsFailed *metric
}

func newStatus(cfg Config, n *names) *status {
	gauge := func(name, help string, labels ...string) *metric { return newMetric(gaugeKind, name, help, labels...) }
	return &status{
		status: cfg.Status, names: n, now: cfg.Now, core: newCoreMetrics(),
		running:       gauge("running_jobs", "Jobs that were given to cores."),
		stopping:      gauge("stopping", "1 while the scheduler stops."),
		ready:         gauge("ready_jobs", "Jobs that could run and wait; at most 10000 are counted.", "class"),
		readyAge:      gauge("ready_oldest_age_seconds", "For how long the first of them could have run.", "class"),
		circuit:       gauge("circuit_state", "Circuit breakers: 0 closed, 1 half-open, 2 open.", "worker", "model"),
		isolations:    gauge("isolations", "What is out of use, by the kind of its scope and why.", "scope", "cause"),
		coreUp:        gauge("core_up", "1 if the core takes jobs.", "core"),
		restarts:      newMetric(counterKind, "core_restarts_total", "How often another core was started in the place of one.", "core"),
		inflight:      gauge("core_inflight_jobs", "Jobs that were given to the core.", "core"),
		stage:         gauge("core_stage", "The stage of the core's defence: 0 normal, 1 shed, 2 throttle, 3 open_breaker, 4 escalate; -1 unknown.", "core"),
		concurrency:   gauge("core_concurrency_limit", "Runs at once while the core throttles; 0: as configured.", "core"),
		coreHeartbeat: gauge("core_heartbeat_seconds", "Round trip of the core's last heartbeat.", "core"),
		teamsFailed:   gauge("failed_teams", "Teams that have given up since the scheduler started."),
	}
}

func (s *status) collect(p *page) {
	if s.status == nil {
		return
	}
	st := s.status()
	p.put(s.running, float64(st.Running))
	p.put(s.stopping, truth(st.Stopping))
	p.put(s.teamsFailed, float64(len(st.FailedTeams)))
	now := s.now()
	for _, class := range job.Classes() {
		r := st.Ready[class]
		age := 0.0
		if r.Depth > 0 {
			age = max(now.Sub(r.Oldest).Seconds(), 0)
		}
		p.put(s.ready, float64(r.Depth), string(class))
		p.put(s.readyAge, age, string(class))
	}
	s.circuits(st.Circuits, p)
	isolations := map[[2]string]int{}
	for _, i := range st.Isolations {
		isolations[[2]string{scopeKind(i.Scope), oneOf(i.Cause, causes())}]++
	}
	for of, n := range isolations {
		p.put(s.isolations, float64(n), of[0], of[1])
	}
	for _, c := range st.Cores {
		core := s.names.core(&c.Status)
		if core == "" {
			continue
		}
		p.put(s.coreUp, truth(c.State == supervisor.Up), core)
		p.put(s.restarts, float64(c.Restarts), core)
		p.put(s.inflight, float64(c.Inflight), core)
		p.put(s.stage, stageNumber(c.Stage), core)
		p.put(s.concurrency, float64(c.Concurrency), core)
		p.put(s.coreHeartbeat, c.Heartbeat.Seconds(), core)
		var snapshot watchdog.Snapshot
		if len(c.Metrics) > 0 && json.Unmarshal(c.Metrics, &snapshot) == nil {
			s.core.collect(&snapshot, core, s.names, p)
		}
	}
}

// circuits puts the worst state of those that share a label.
func (s *status) circuits(list []ipc.Circuit, p *page) {
	worst := map[[2]string]float64{}
	for _, c := range list {
		of := [2]string{s.names.worker(c.Worker), s.names.model(c.Model)}
		worst[of] = max(worst[of], circuitNumber(c.State))
	}
	for of, state := range worst {
		p.put(s.circuit, state, of[0], of[1])
	}
}

func stageNumber(text string) float64 {
	var stage watchdog.Stage
	if stage.UnmarshalText([]byte(text)) != nil {
		return -1
	}
	return float64(stage)
}

func circuitNumber(state string) float64 {
	switch state {
	case "open":
		return 2
	case "half-open":
		return 1
	}
	return 0
}

// scopeKind leaves out which worker, folder or core: folders are without number,
// and private.
func scopeKind(s isolation.Scope) string {
	kind, _, _ := strings.Cut(string(s), ":")
	return oneOf(kind, []string{"global", "node", "worker", "workspace", "trigger", "core"})
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
