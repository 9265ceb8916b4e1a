package permit_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/permit"
)

// TestElsewhereCounts: what other gates hold takes slots here, for the request
// that says so.
func TestElsewhereCounts(t *testing.T) {
	l := permit.Limits{
		MaxConcurrent: 3, PerKind: map[job.WorkerKind]int{"codex": 2}, EachTenant: 2, EachWorkspace: 2, TTL: 5 * time.Second,
	}
	codex := permit.Held{Kind: "codex", Tenant: "other", Workspace: "/other"}
	tests := []struct {
		name    string
		there   []permit.Held
		refused bool
	}{
		{"nothing", nil, false},
		{"one of all", []permit.Held{{}}, false},
		{"three of all", []permit.Held{{Tenant: "x"}, {Tenant: "y"}, {Tenant: "z"}}, true},
		{"one of the kind", []permit.Held{codex}, false},
		{"two of the kind", []permit.Held{codex, codex}, true},
		{"two of the tenant", []permit.Held{{Tenant: job.DefaultTenant}, {}}, true},
		{"two of the workspace", []permit.Held{{Tenant: "x", Workspace: "/w"}, {Tenant: "y", Workspace: "/w"}}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := permit.NewGate(l)
				r := request("a", 1, "codex")
				r.Workspace, r.Elsewhere = "/w", tt.there
				if tt.refused {
					wantRejection(t, g, r, job.RateLimited)
				} else {
					mustRequest(t, g, r).Revoke(errEnd)
				}
				r.Elsewhere = nil
				mustRequest(t, g, r).Revoke(errEnd) // each request says it anew
			})
		})
	}
}

// TestThrottle bounds what begins, here and elsewhere together, and says what to do.
func TestThrottle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := permit.NewGate(permit.Limits{MaxConcurrent: 4, TTL: time.Minute})
		mustRequest(t, g, request("a", 1, "codex"))
		g.Throttle(2)
		r := request("first", 1, "codex")
		r.Elsewhere = []permit.Held{{Kind: "shell"}}
		first := mustRequest(t, g, r) // there is always one that shows how the host fares
		r = request("b", 1, "codex")
		r.Elsewhere = []permit.Held{{Kind: "shell"}}
		if refused := wantRejection(t, g, r, job.GlobalShed); refused.Action != permit.ActionDefer {
			t.Errorf("rejection %+v, want to defer", refused)
		}
		first.Settle(job.Usage{}, true)
		mustRequest(t, g, request("b", 1, "codex"))
		wantRejection(t, g, request("c", 1, "codex"), job.GlobalShed)
		g.Throttle(0)
		mustRequest(t, g, request("c", 1, "codex"))
		g.Throttle(9) // more than there are
		mustRequest(t, g, request("d", 1, "codex"))
		if refused := wantRejection(t, g, request("e", 1, "codex"), job.RateLimited); refused.Action != "" {
			t.Errorf("rejection %+v is none of the defence", refused)
		}
		g.RevokeUnused(errEnd, func(p *permit.Permit) bool { return p.Job == "b" })
		if unused, _ := g.Counts(); unused != 3 {
			t.Errorf("%d permits are left, want 3", unused)
		}
		g.RevokeUnused(errEnd, nil)
	})
}
