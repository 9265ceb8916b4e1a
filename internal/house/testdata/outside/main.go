// A program of another module that asks a scheduler and brings a worker of its own.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

func main() {
	c := client.New(os.Args[1])
	defer c.Close()
	if err := tour(context.Background(), c); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// tour names the types of answers, as a program does that keeps them.
func tour(ctx context.Context, c *client.Client) error {
	var jobs api.Jobs
	jobs, err := c.Submit(ctx, api.Submission{Source: "outside", Jobs: []job.Spec{{Name: "x"}}}, client.WithKey("1"))
	if p, ok := errors.AsType[*api.Problem](err); ok && p.Name() == "duplicate" {
		return p
	}
	var last *api.Job
	for told, err := range c.Follow(ctx, string(jobs.Jobs[0].ID), client.FollowOptions{}) {
		if err != nil {
			return err
		}
		last = told.Job
	}
	for u, err := range c.Stream(ctx, client.StreamOptions{Kinds: []api.UpdateKind{api.UpdateEscalation}}) {
		var x *api.Escalation = u.Escalation
		if err != nil || x != nil {
			break
		}
	}
	var (
		page  api.Jobs
		st    api.Status
		over  api.Overview
		pipes []api.Pipeline
		reps  []api.Reputation
		used  api.Usage
		out   api.Isolation
		found api.Evaluations
		again api.OpenedRun
		calls *api.RPCError
	)
	page, err = c.List(ctx, client.ListQuery{States: []job.EntryState{last.State}})
	st, err2 := c.Status(ctx)
	over, err3 := c.Overview(ctx)
	pipes, err4 := c.Pipelines(ctx, "")
	reps, err5 := c.Reputations(ctx, client.ReputationQuery{Kind: api.AgentSubject})
	used, err6 := c.Usage(ctx, client.UsageQuery{By: []api.Dimension{api.ByTenant}})
	out, err7 := c.Pause(ctx, api.Pause{Scope: "global"})
	found, err8 := c.Evaluate(ctx, last.ID, api.Judgement{By: "me"})
	again, err9 := c.OpenRun(ctx, api.Run{})
	err10 := c.Call(ctx, "kernel.sched.list", nil, nil)
	errors.As(err10, &calls)
	fmt.Println(page, st, over, pipes, reps, used, out, found, again)
	return errors.Join(err, err2, err3, err4, err5, err6, err7, err8, err9, c.SetGrant(ctx, api.Grant{Tenant: "t"}))
}

// echo is a worker of this module.
type echo struct{}

var _ worker.Adapter = echo{}

func (echo) Locate(job.WorkerSettings) (string, error)       { return "/bin/echo", nil }
func (echo) Version(context.Context, string) (string, error) { return "", nil }
func (a echo) Start(t *worker.Task) (worker.Session, error) {
	return &run{worker.Command{Path: "/bin/echo", Args: []string{t.Instructions}, Env: t.Environ, Dir: t.Dir}}, nil
}

type run struct{ command worker.Command }

func (r *run) Command() worker.Command { return r.command }

func (r *run) Step(_ time.Time, in worker.Input) []worker.Action {
	switch in := in.(type) {
	case worker.Output:
		return worker.Events(job.Event{Kind: job.EventText, Text: string(in.Line)})
	case worker.Ended:
		return []worker.Action{worker.Finish{Result: worker.Result{Answer: fmt.Sprint(in.Exit.Code)}}}
	}
	return nil
}
