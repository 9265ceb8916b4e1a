package agentcore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/internal/gateway"
	"github.com/agentsched/agentsched/internal/proc"
	"github.com/agentsched/agentsched/internal/sandbox"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/permit"
	"github.com/agentsched/agentsched/worker"
)

// Person is what a person needs to go on with the session of a job by hand, where its runs work: held as these are, with their
// environment, models, secrets and repositories.
type Person struct {
	Confining // of the job, without Credentials

	Adapter  worker.Adapter
	Worker   job.WorkerSettings // of the session's kind, the model being the job's
	Secrets  map[string]ipc.Secret
	Prices   map[string]job.Price
	Session  string   // the program's own, which it resumes
	Attempt  int      // the latest of the job
	Dir      string   // where the program works
	Env      []string // of the workspace, NAME=VALUE
	Environ  []string // this process's, as os.Environ gives it
	Programs *proc.Host
}

// Seat is a person's program, ready to be started. Close ends what serves it.
type Seat struct {
	// Held is what holds it; nil if nothing does.
	Held *Confinement
	// Command is the program's.
	Command worker.Command

	gateway *gateway.Gateway
	settle  func()
}

// Close ends what serves the program, which has ended.
func (s *Seat) Close() error {
	err := s.Held.Close()
	if s.gateway != nil {
		s.gateway.Close()
	}
	if s.settle != nil {
		s.settle()
	}
	return err
}

// TakeSeat prepares the program of a job's worker for a person; a shell, if it is not for people. What they use of models is
// charged to no budget of the job's. An error that is a *worker.Failure is one of the job or of the configuration.
func TakeSeat(ctx context.Context, p Person) (seat *Seat, err error) {
	seat = &Seat{}
	defer func() {
		if err != nil {
			err = errors.Join(err, seat.Close())
			seat = nil
		}
	}()
	users := outside{host: p.Programs, environ: p.Environ, lookup: p.lookup}
	p.Credentials, p.environ = users.credentials, worker.BaseEnv(p.Environ)
	p.more = func(c *Confinement) error { return seat.openModels(ctx, c, &p, users) }
	if !p.Settings.Report || p.Spec.Sandbox.Level != "" {
		if seat.Held, err = Confine(ctx, p.Confining); err != nil {
			return seat, err
		}
	}
	secrets, _, err := users.secrets(ctx, p.Spec.Secrets, p.tenant(), p.Secrets, p.Temp)
	if err != nil {
		return seat, err
	}
	t := p.task(seat.Held, secrets)
	for _, d := range []string{t.Home, t.Scratch} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return seat, fmt.Errorf("make the program's private folder: %w", err)
		}
	}
	if seat.Held != nil {
		if err := seat.Held.MakeFolders(t.Environ); err != nil {
			return seat, err
		}
	}
	if program, ok := p.Adapter.(worker.Interactive); ok {
		seat.Command, err = program.Interactive(t)
		return seat, err
	}
	seat.Command = worker.Command{Path: usersShell(p.User), Env: t.Environ, Dir: p.Dir}
	return seat, nil
}

// usersShell returns the user's shell, or /bin/sh where that is none.
func usersShell(user func(string) string) string {
	if path, err := exec.LookPath(user("SHELL")); err == nil && filepath.IsAbs(path) {
		return path
	}
	return "/bin/sh"
}

func (p *Person) lookup(name string) (string, bool) {
	v := p.User(name)
	return v, v != ""
}

// task returns the task of the job as its adapter prepares a run of it, but that a person answers what the program asks.
func (p *Person) task(held *Confinement, secrets []string) *worker.Task {
	names := append(append([]string{}, p.Worker.Env...), p.Spec.Env...)
	if p.Worker.KeyEnv != "" && held.modelEndpoint() == nil {
		names = append(names, p.Worker.KeyEnv)
	}
	env := append(append(worker.BaseEnv(p.Environ, names...), p.Env...), secrets...)
	return &worker.Task{
		Job: p.Job, Name: p.Spec.Name, Attempt: p.Attempt, Kind: p.Confining.Worker, Model: p.Worker.Model, SystemPrompt: p.Spec.SystemPrompt,
		Dir: p.Dir, Home: p.home(), Scratch: p.Scratch, Session: p.Session, Asked: true, Capabilities: p.Spec.Capabilities, AllowCommands: p.Spec.AllowCommands,
		Environ: held.Environ(worker.SetEnv(env, "TMPDIR", p.Temp)), Confined: held != nil, Models: held.modelEndpoint(), Lookup: p.lookup, Settings: p.Worker,
	}
}

// openModels serves the program the models of its worker, by a gateway of its own.
func (s *Seat) openModels(ctx context.Context, c *Confinement, p *Person, users outside) error {
	upstream, err := Upstream(p.Adapter, p.Worker, p.Settings.LoginVisible, c.user)
	if upstream == nil {
		return err
	}
	kind := p.Confining.Worker
	// A person's requests are bounded by nothing of the job's; the gateway wants to be told so.
	gate := permit.NewGate(permit.Limits{MaxConcurrent: 1, TTL: time.Minute})
	granted, err := gate.Request(ctx, permit.Request{Job: p.Job, Tenant: p.tenant(), Attempt: p.Attempt, Choice: job.Choice{Worker: kind, Model: p.Worker.Model}})
	if err == nil {
		granted, err = gate.Use(granted.ID, p.Job, p.Attempt)
	}
	if err != nil {
		return fmt.Errorf("serve the models: %w", err)
	}
	s.settle = func() { granted.Settle(job.Usage{}, true) }
	s.gateway, err = gateway.New(gateway.Config{
		Providers: []gateway.Provider{provider(kind, p.Worker, *upstream, c.user)}, Prices: p.Prices, Log: zerolog.Nop(), RunCommand: users.ask,
	})
	if err != nil {
		return err
	}
	return c.serveModels(&models{upstream: *upstream, meter: &worker.Meter{}}, s.gateway, gateway.RunConfig{
		Permit: granted, HostedTools: c.held.Spec.HasFullNetwork(), Models: allowedModels(p.Worker.Model, p.Worker),
		Denied: func(what string) { c.seen.add("gateway: "+what, false) },
	})
}

// Level is how the program will be held: as the job's runs are.
func (p *Person) Level() (sandbox.Level, error) {
	if p.Settings.Report && p.Spec.Sandbox.Level == "" {
		return sandbox.None, nil
	}
	return p.Confining.Level()
}
