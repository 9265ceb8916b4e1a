package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/scheduler"
)

func (s *Server) controlRoutes() {
	post(s, route{id: "pause", method: "POST", path: "/v1/pause", role: operate, tag: "control",
		about: "Let nothing of a scope begin, for a while or until it is resumed.\nWhat runs goes on."}, s.pause)
	post(s, route{id: "resume", method: "POST", path: "/v1/resume", role: operate, tag: "control",
		about: "Lift the isolation of a scope and return what it was."}, s.resume)
	post(s, route{id: "restart-cores", method: "POST", path: "/v1/cores/restart", role: operate, tag: "control",
		about: "Replace cores.\nThe answer comes when the successors are up."}, s.restart)
	get(s, route{id: "reload", method: "POST", path: "/v1/reload", role: operate, tag: "control",
		about: "Put the changed configuration in force."}, s.reload)
	post(s, route{id: "upgrade", method: "POST", path: "/v1/upgrade", role: operate, tag: "control", status: http.StatusAccepted,
		about: "Hand over to a new program, which goes on where this one stops."}, s.upgrade)
	post(s, route{id: "new-ui-link", method: "POST", path: "/v1/ui-links", role: operate, tag: "control", status: http.StatusCreated, bodyOptional: true,
		about: "Return a link that opens the dashboard once."}, s.newUILink)
}

func (s *Server) pause(_ context.Context, _ *struct{}, in *api.Pause) (api.Isolation, error) {
	i, err := s.opt.Sched.Isolations.Pause(in.Scope, in.Reason, in.For.Std())
	if err != nil {
		err = badField("body.scope", "%v", err)
	}
	return IsolationOf(&i), err
}

func (s *Server) resume(ctx context.Context, _ *struct{}, in *api.Resume) (api.Isolation, error) {
	i, err := s.opt.Sched.Isolations.Resume(in.Scope)
	if err != nil && !errors.Is(err, scheduler.ErrNotIsolated) {
		err = badField("body.scope", "%v", err) // it names no scope
	}
	return IsolationOf(&i), err
}

func (s *Server) restart(ctx context.Context, _ *struct{}, in *api.RestartCores) (api.Status, error) {
	if n := len(s.opt.Sched.Status().Cores); in.Core < 0 || in.Core > n {
		return api.Status{}, badField("body.core", "there is no core %d, want 1 to %d, or 0 for all", in.Core, n)
	}
	if err := s.opt.Sched.RestartCore(ctx, in.Core, in.Drain); err != nil {
		return api.Status{}, newProblem("no_successor", http.StatusConflict, "restart cores: %v", err)
	}
	return s.status(ctx, nil)
}

func (s *Server) reload(ctx context.Context, _ *struct{}) (api.Reloaded, error) {
	if s.opt.Reload == nil {
		return api.Reloaded{}, fmt.Errorf("reload: %w", errNoSuch)
	}
	text, err := s.opt.Reload(ctx)
	if err != nil && ctx.Err() == nil {
		err = newProblem("not_reloaded", http.StatusConflict, "%v", err)
	}
	return api.Reloaded{Text: text}, err
}

// upgradeModes are what an upgrade may do about running jobs.
func upgradeModes() []string { return []string{"checkpoint", "drain"} }

func (s *Server) upgrade(ctx context.Context, _ *struct{}, in *api.Upgrade) (api.Upgrade, error) {
	if s.opt.Upgrade == nil {
		return *in, fmt.Errorf("upgrade: %w", errNoSuch)
	}
	if !slices.Contains(upgradeModes(), in.Mode) {
		return *in, badField("body.mode", "is %q, want one of %v", in.Mode, upgradeModes())
	}
	err := s.opt.Upgrade(ctx, *in)
	if err != nil && ctx.Err() == nil {
		err = newProblem("not_upgraded", http.StatusConflict, "%v", err)
	}
	return *in, err
}

func (s *Server) newUILink(ctx context.Context, _ *struct{}, in *api.UILink) (api.UILink, error) {
	if s.opt.NewUILink == nil {
		return *in, fmt.Errorf("links to the dashboard: %w", errNoSuch)
	}
	link, err := s.opt.NewUILink(ctx, in.Role)
	if err != nil {
		err = badField("body.role", "%v", err)
	}
	return link, err
}
