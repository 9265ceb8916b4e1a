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

// control answers what an operator does to the scheduler. A nil function is not
// available.
type control struct {
	sched     *scheduler.Scheduler
	reload    func(context.Context) (string, error)
	upgrade   func(context.Context, api.Upgrade) error
	newUILink func(ctx context.Context, role string) (api.UILink, error)
}

func (c control) routes(r *router) {
	post(r, route{id: "pause", method: "POST", path: "/v1/pause", role: operate, tag: "control",
		about: "Pause a scope, for a time or until it is resumed: none of its jobs begins.\nRunning jobs go on."}, c.pause)
	post(r, route{id: "resume", method: "POST", path: "/v1/resume", role: operate, tag: "control",
		about: "Lift the isolation of a scope and return what it was."}, c.resume)
	post(r, route{id: "restart-cores", method: "POST", path: "/v1/cores/restart", role: operate, tag: "control",
		about: "Replace cores.\nThe answer is sent when the new cores are up."}, c.restart)
	get(r, route{id: "reload", method: "POST", path: "/v1/reload", role: operate, tag: "control",
		about: "Apply the changed configuration."}, c.putInForce)
	post(r, route{id: "upgrade", method: "POST", path: "/v1/upgrade", role: operate, answered: byEach, tag: "control", status: http.StatusAccepted,
		about: "Upgrade to a new program, which continues where this one stops."}, c.handOver)
	post(r, route{id: "new-ui-link", method: "POST", path: "/v1/ui-links", role: operate, answered: byEach, tag: "control", status: http.StatusCreated, bodyOptional: true,
		about: "Create a link that opens the dashboard once."}, c.link)
}

func (c control) pause(_ context.Context, _ *struct{}, in *api.Pause) (api.Isolation, error) {
	i, err := c.sched.Isolations.Pause(in.Scope, in.Reason, in.For.Std())
	if err != nil {
		err = badField("body.scope", "%v", err)
	}
	return IsolationOf(&i), err
}

func (c control) resume(_ context.Context, _ *struct{}, in *api.Resume) (api.Isolation, error) {
	i, err := c.sched.Isolations.Resume(in.Scope)
	if err != nil && !errors.Is(err, scheduler.ErrNotIsolated) {
		err = badField("body.scope", "%v", err) // it names no scope
	}
	return IsolationOf(&i), err
}

func (c control) restart(ctx context.Context, _ *struct{}, in *api.RestartCores) (api.Status, error) {
	which, err := c.chosen(in)
	if err != nil {
		return api.Status{}, err
	}
	for _, index := range which {
		if err := c.sched.RestartCore(ctx, index, in.Drain); err != nil {
			return api.Status{}, newProblem("no_successor", http.StatusConflict, "restart cores: %v", err)
		}
	}
	st := c.sched.Status()
	return statusOf(&st), nil
}

// chosen returns the indexes of the cores that are to be replaced; 0 stands for all of this host.
func (c control) chosen(in *api.RestartCores) (which []int, err error) {
	if in.Core == 0 && in.Node == "" {
		return []int{0}, nil
	}
	own := 0
	for _, x := range c.sched.Status().Cores {
		switch {
		case x.Node == "":
			own++
			if in.Node == "" && x.Index == in.Core {
				which = append(which, x.Index)
			}
		case x.Node == in.Node && (in.Core == 0 || x.Place == in.Core), in.Node == "" && x.Index == in.Core:
			which = append(which, x.Index)
		}
	}
	switch {
	case len(which) > 0:
		return which, nil
	case in.Node != "":
		return nil, badField("body.core", "no core %d of node %s is up, or there is no such node; `scheduler status` lists the cores", in.Core, in.Node)
	}
	return nil, badField("body.core", "there is no core %d, want 1 to %d, or 0 for all", in.Core, own)
}

func (c control) putInForce(ctx context.Context, _ *struct{}) (api.Reloaded, error) {
	if c.reload == nil {
		return api.Reloaded{}, fmt.Errorf("reload: %w", errNoSuch)
	}
	text, err := c.reload(ctx)
	if err != nil && ctx.Err() == nil {
		err = newProblem("not_reloaded", http.StatusConflict, "%v", err)
	}
	return api.Reloaded{Text: text}, err
}

// upgradeModes are what an upgrade may do about running jobs.
func upgradeModes() []string { return []string{"checkpoint", "drain"} }

func (c control) handOver(ctx context.Context, _ *struct{}, in *api.Upgrade) (api.Upgrade, error) {
	if c.upgrade == nil {
		return *in, fmt.Errorf("upgrade: %w", errNoSuch)
	}
	if !slices.Contains(upgradeModes(), in.Mode) {
		return *in, badField("body.mode", "is %q, want one of %v", in.Mode, upgradeModes())
	}
	err := c.upgrade(ctx, *in)
	if err != nil && ctx.Err() == nil {
		err = newProblem("not_upgraded", http.StatusConflict, "%v", err)
	}
	return *in, err
}

func (c control) link(ctx context.Context, _ *struct{}, in *api.UILink) (api.UILink, error) {
	if c.newUILink == nil {
		return *in, fmt.Errorf("links to the dashboard: %w", errNoSuch)
	}
	link, err := c.newUILink(ctx, in.Role)
	if err != nil {
		err = badField("body.role", "%v", err)
	}
	return link, err
}
