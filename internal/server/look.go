package server

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/queue"
)

func (s *Server) lookRoutes() {
	get(s, route{id: "get-overview", method: "GET", path: "/v1/overview", role: read, tag: "overview",
		about: "Tell all that somebody sees at a glance.\nIt is made at most every 2 s, whoever asks."}, s.lookOver)
	get(s, route{id: "get-status", method: "GET", path: "/v1/status", role: read, tag: "overview", about: "Tell how the scheduler and its cores fare."}, s.status)
	get(s, route{id: "list-tenants", method: "GET", path: "/v1/tenants", role: read, tag: "overview",
		about: "Tell how each tenant stands.\nIt is as old as the overview."}, s.tenants)
	get(s, route{id: "list-workers", method: "GET", path: "/v1/workers", role: read, tag: "overview", about: "Tell how each kind of worker stands."}, s.workers)
	get(s, route{id: "get-timeline", method: "GET", path: "/v1/timeline", role: read, tag: "overview",
		about: "List the attempts that ran within a span of time, the first to begin first.\nWith more than limit, those that began last are there."}, s.timeline)
}

func (s *Server) status(_ context.Context, _ *struct{}) (api.Status, error) {
	st := s.opt.Sched.Status()
	return statusOf(&st), nil
}

func (s *Server) lookOver(ctx context.Context, _ *struct{}) (api.Overview, error) {
	return s.overview.get(ctx, s.makeOverview)
}

func (s *Server) tenants(ctx context.Context, _ *struct{}) (api.Tenants, error) {
	o, err := s.overview.get(ctx, s.makeOverview)
	return api.Tenants{Tenants: o.Tenants}, err
}

func (s *Server) workers(ctx context.Context, _ *struct{}) (api.Workers, error) {
	if s.opt.Workers == nil {
		return api.Workers{}, fmt.Errorf("workers: %w", errNoSuch)
	}
	list := some(s.opt.Workers(ctx))
	for i := range list {
		list[i].Circuits, list[i].Isolations = some(list[i].Circuits), some(list[i].Isolations)
	}
	return api.Workers{Workers: list}, nil
}

type timelineQuery struct {
	Since time.Time `query:"since" doc:"what had not ended by then; absent: 3 hours before until"`
	Until time.Time `query:"until" doc:"what began by then; absent: now"`
	Limit int       `query:"limit" minimum:"1" maximum:"10000" default:"2000" doc:"at most so many"`
}

// timelineSpan is the span that a timeline has if none is given.
const timelineSpan = 3 * time.Hour

func (s *Server) timeline(ctx context.Context, q *timelineQuery) (api.Timeline, error) {
	out := api.Timeline{Since: q.Since.UTC(), Until: q.Until.UTC()}
	if q.Until.IsZero() {
		out.Until = time.Now().UTC().Round(0)
	}
	if q.Since.IsZero() {
		out.Since = out.Until.Add(-timelineSpan)
	}
	if !out.Since.Before(out.Until) {
		return out, badField("query.since", "%s is not before until, %s", out.Since.Format(time.RFC3339), out.Until.Format(time.RFC3339))
	}
	runs, err := s.opt.Store.Runs(ctx, out.Since, out.Until, q.Limit+1)
	if err != nil {
		return out, err
	}
	out.More = len(runs) > q.Limit
	out.Attempts = each(runs[:min(len(runs), q.Limit)], func(r *queue.Running) api.Running { return api.Running(*r) })
	slices.Reverse(out.Attempts)
	return out, nil
}

// alertsOf returns what a person should look at, the newest first. What lasts is
// as old as it began.
func alertsOf(st *api.Status, told []isolation.Escalation, now time.Time) []api.Alert {
	alerts := []api.Alert{}
	for _, x := range told {
		alerts = append(alerts, api.Alert{At: x.Time, Kind: "escalation", Scope: string(x.Scope), Message: x.Message})
	}
	for _, i := range st.Isolations {
		if !slices.ContainsFunc(told, func(x isolation.Escalation) bool { return string(x.Scope) == i.Scope && string(x.Cause) == i.Cause }) {
			alerts = append(alerts, api.Alert{At: i.Since, Kind: "isolation", Scope: i.Scope, Message: i.Message})
		}
	}
	for _, t := range st.FailedTeams {
		alerts = append(alerts, api.Alert{At: t.At, Kind: "team", Scope: "batch:" + string(t.Batch), Message: fmt.Sprintf("team %s has given up: %s", t.Team, t.Why)})
	}
	for _, c := range st.Circuits {
		if c.State != "closed" {
			alerts = append(alerts, api.Alert{At: now, Kind: "circuit", Scope: string(isolation.WorkerScope(c.Worker)), Message: circuitText(&c)})
		}
	}
	for i := range st.Cores {
		if text := coreText(&st.Cores[i]); text != "" {
			alerts = append(alerts, api.Alert{At: st.Cores[i].Since, Kind: "core", Scope: fmt.Sprintf("core:%d", st.Cores[i].Index), Message: text})
		}
	}
	slices.SortStableFunc(alerts, func(a, b api.Alert) int { return b.At.Compare(a.At) })
	return alerts[:min(len(alerts), maxAlerts)]
}

// maxAlerts is how many alerts an overview has at most.
const maxAlerts = 50

func circuitText(c *api.Circuit) string {
	what := string(c.Worker)
	if c.Model != "" {
		what += ":" + c.Model
	}
	return fmt.Sprintf("the breaker of %s is %s: %s", what, c.State, c.Cause)
}

// coreText says what is unusual about a core; "" if nothing is.
func coreText(c *api.Core) string {
	switch {
	case c.State == "isolated" || c.State == "down":
		return fmt.Sprintf("core %d is %s: %s", c.Index, c.State, c.Cause)
	case c.Stage != "" && c.Stage != "normal":
		return fmt.Sprintf("core %d defends itself, stage %s: %s", c.Index, c.Stage, c.Evidence)
	}
	return ""
}
