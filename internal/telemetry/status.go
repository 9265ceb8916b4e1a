package telemetry

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

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

	running, stopping, ready, readyAge      *prometheus.Desc
	circuit, isolations                     *prometheus.Desc
	coreUp, restarts, inflight, stage       *prometheus.Desc
	concurrency, coreHeartbeat, teamsFailed *prometheus.Desc
}

func newStatus(cfg Config, n *names) *status {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("agentsched_"+name, help, labels, nil)
	}
	return &status{
		status: cfg.Status, names: n, now: cfg.Now, core: newCoreMetrics(),
		running:       desc("running_jobs", "Jobs that were given to cores."),
		stopping:      desc("stopping", "1 while the scheduler stops."),
		ready:         desc("ready_jobs", "Jobs that could run and wait; at most 10000 are counted.", "class"),
		readyAge:      desc("ready_oldest_age_seconds", "For how long the first of them could have run.", "class"),
		circuit:       desc("circuit_state", "Circuit breakers: 0 closed, 1 half-open, 2 open.", "worker", "model"),
		isolations:    desc("isolations", "What is out of use, by the kind of its scope and why.", "scope", "cause"),
		coreUp:        desc("core_up", "1 if the core takes jobs.", "core"),
		restarts:      desc("core_restarts_total", "How often another core was started in the place of one.", "core"),
		inflight:      desc("core_inflight_jobs", "Jobs that were given to the core.", "core"),
		stage:         desc("core_stage", "The stage of the core's defence: 0 normal, 1 shed, 2 throttle, 3 open_breaker, 4 escalate; -1 unknown.", "core"),
		concurrency:   desc("core_concurrency_limit", "Runs at once while the core throttles; 0: as configured.", "core"),
		coreHeartbeat: desc("core_heartbeat_seconds", "Round trip of the core's last heartbeat.", "core"),
		teamsFailed:   desc("failed_teams", "Teams that have given up since the scheduler started."),
	}
}

// Describe implements prometheus.Collector.
func (s *status) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		s.running, s.stopping, s.ready, s.readyAge, s.circuit, s.isolations, s.coreUp, s.restarts, s.inflight, s.stage,
		s.concurrency, s.coreHeartbeat, s.teamsFailed,
	} {
		ch <- d
	}
	s.core.describe(ch)
}

// Collect implements prometheus.Collector.
func (s *status) Collect(ch chan<- prometheus.Metric) {
	if s.status == nil {
		return
	}
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	st := s.status()
	gauge(s.running, float64(st.Running))
	gauge(s.stopping, truth(st.Stopping))
	gauge(s.teamsFailed, float64(len(st.FailedTeams)))
	now := s.now()
	for _, class := range job.Classes() {
		r := st.Ready[class]
		age := 0.0
		if r.Depth > 0 {
			age = max(now.Sub(r.Oldest).Seconds(), 0)
		}
		gauge(s.ready, float64(r.Depth), string(class))
		gauge(s.readyAge, age, string(class))
	}
	s.circuits(st.Circuits, gauge)
	isolations := map[[2]string]int{}
	for _, i := range st.Isolations {
		isolations[[2]string{scopeKind(i.Scope), oneOf(i.Cause, causes())}]++
	}
	for of, n := range isolations {
		gauge(s.isolations, float64(n), of[0], of[1])
	}
	for _, c := range st.Cores {
		core := strconv.Itoa(c.Index)
		gauge(s.coreUp, truth(c.State == supervisor.Up), core)
		ch <- prometheus.MustNewConstMetric(s.restarts, prometheus.CounterValue, float64(c.Restarts), core)
		gauge(s.inflight, float64(c.Inflight), core)
		gauge(s.stage, stageNumber(c.Stage), core)
		gauge(s.concurrency, float64(c.Concurrency), core)
		gauge(s.coreHeartbeat, c.Heartbeat.Seconds(), core)
		var snapshot watchdog.Snapshot
		if len(c.Metrics) > 0 && json.Unmarshal(c.Metrics, &snapshot) == nil {
			s.core.collect(&snapshot, core, s.names, ch)
		}
	}
}

// circuits tells the worst state of those that share a label.
func (s *status) circuits(list []ipc.Circuit, gauge func(*prometheus.Desc, float64, ...string)) {
	worst := map[[2]string]float64{}
	for _, c := range list {
		of := [2]string{s.names.worker(c.Worker), s.names.model(c.Model)}
		worst[of] = max(worst[of], circuitNumber(c.State))
	}
	for of, state := range worst {
		gauge(s.circuit, state, of[0], of[1])
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
	return oneOf(kind, []string{"global", "worker", "workspace", "trigger", "core"})
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
