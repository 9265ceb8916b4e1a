package scheduler

import (
	"cmp"
	"encoding/json"
	"os"
	"slices"
	"time"

	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/internal/supervisor"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/policy"
	"github.com/agentsched/agentsched/queue"
)

// Status is how the scheduler and its cores fare.
type Status struct {
	PID        int                            `json:"pid"`
	Started    time.Time                      `json:"started"`
	Cores      []CoreStatus                   `json:"cores"`
	Isolations []isolation.Isolation          `json:"isolations"`
	Circuits   []ipc.Circuit                  `json:"circuits"`
	Ready      map[job.Class]queue.ClassReady `json:"ready"` // jobs that could run and wait
	Running    int                            `json:"running"`
	Policy     string                         `json:"policy"` // which says who is next
	Shares     []policy.Share                 `json:"shares"` // of the tenants that it knows
	// FailedTeams are those that have given up since the scheduler started, at most
	// 100, the newest last.
	FailedTeams []FailedTeam `json:"failed_teams,omitempty"`
	Stopping    bool         `json:"stopping,omitempty"`
	// PermitValidity is how long runs go on without a heartbeat of the scheduler; absent:
	// for as long as they like.
	PermitValidity job.Duration `json:"permit_validity,omitempty"`
}

// CoreStatus is how one core fares.
type CoreStatus struct {
	supervisor.Status
	Inflight    int    `json:"inflight"`              // jobs that were given to it
	Stage       string `json:"stage,omitempty"`       // of its staged defence
	Concurrency int    `json:"concurrency,omitempty"` // runs at once while it throttles; 0: as configured
	Evidence    string `json:"evidence,omitempty"`    // why it is at the stage
	// Metrics are the core's, by their names on the wire.
	Metrics json.RawMessage `json:"metrics,omitempty"`
}

// Status returns how the scheduler and its cores fare now.
func (s *Scheduler) Status() Status {
	if s.cfg.idle {
		return Status{Isolations: s.Isolations.list()}
	}
	st := Status{
		PID: os.Getpid(), Started: s.started, Isolations: s.Isolations.list(), Shares: s.loop.shares(), Running: s.loop.inFlight(), FailedTeams: s.Followers.failedTeams(),
	}
	s.fleet.status(&st)
	slices.SortFunc(st.Circuits, func(a, b ipc.Circuit) int {
		return cmp.Or(cmp.Compare(a.Worker, b.Worker), cmp.Compare(a.Model, b.Model))
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	st.Ready, st.Stopping, st.Policy = s.ready, s.stopping, s.cfg.Policy.Name
	return st
}
