package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/internal/statedir"
	"github.com/agentsched/agentsched/internal/terminal"
	"github.com/agentsched/agentsched/job"
)

// answerTime is how long a scheduler that holds the state directory may take to
// answer on its socket: it opens that a little after it has taken the lock.
const answerTime = 15 * time.Second

// lookEvery is how often a run that was handed over looks whether its scheduler is
// still the same.
const lookEvery = time.Second

// runElsewhere hands the jobs to the scheduler that works on the state directory
// already, and waits for their end as if they ran here. The error wraps
// client.ErrNotRunning if that scheduler does not answer.
func (runs *runner) runElsewhere(ctx context.Context, locked *statedir.LockedError, src *source, o runOptions) error {
	if err := runs.flagsOfOthers(locked); err != nil {
		return err
	}
	p, err := runs.at.open()
	if err != nil {
		return err
	}
	defer p.Close()
	running, err := runs.at.running()
	if err != nil {
		return err
	}
	defer running.Close()
	r := &handedRun{runs: runs, peer: p, running: running, src: src, options: o, signals: make(chan os.Signal, 2)}
	signal.Notify(r.signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE) // before a job can run
	defer signal.Stop(r.signals)
	opened, err := r.handOver(ctx)
	if err != nil {
		return err
	}
	if !runs.con.json {
		fmt.Fprintf(runs.con.stderr, "%s; the scheduler with process id %d works on %s already and runs them; Ctrl-C stops them\n", toldOf(opened), r.status.PID, p.Name())
	}
	return r.wait(ctx, opened.Batch)
}

// flagsOfOthers refuses flags that only the scheduler that runs the jobs can obey.
func (runs *runner) flagsOfOthers(locked *statedir.LockedError) error {
	var names []string
	for _, f := range []struct {
		name  string
		given bool
	}{
		{"--concurrency", runs.atOnce != 0}, {"--cores", runs.cores != 0}, {"--config", runs.prog.configPath != ""}, {"--core", runs.prog.corePath != ""}, {"--log-level", runs.local.logLevel != ""},
	} {
		if f.given {
			names = append(names, f.name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	what := strings.Join(names, " and ")
	return usage(fmt.Errorf("%s cannot be given here: the scheduler with process id %d works on state directory %s and runs the jobs as it was started", what, locked.PID, locked.Path),
		"leave "+what+" out, or run them apart with --state DIR",
		"to change the running scheduler, edit its configuration and send it SIGHUP, or start it again with "+what)
}

// handedRun is a run whose jobs another process runs.
type handedRun struct {
	runs    *runner
	peer    *peer
	running *client.Client // ErrNotRunning if none runs
	src     *source
	options runOptions
	status  api.Status // of the scheduler that has the jobs
	batch   job.BatchID
	asked   time.Time // when it was looked at last
	alone   bool      // it was told that no scheduler runs
	out     io.Writer // for what happens beside the view

	signals  chan os.Signal
	stopping atomic.Bool
}

// handOver opens the run. A signal to end gives that up; if the run is open by then,
// the signal is for wait.
func (r *handedRun) handOver(ctx context.Context) (api.OpenedRun, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var got os.Signal
	var listening sync.WaitGroup
	terminal := hasTerminal()
	listening.Go(func() {
		for {
			select {
			case s := <-r.signals:
				if ends(s, terminal) {
					got = s
					cancel()
					return
				}
			case <-ctx.Done():
				return
			}
		}
	})
	opened, err := r.open(ctx)
	cancel()
	listening.Wait()
	switch {
	case got == nil:
		return opened, err
	case err != nil:
		return opened, &exitError{code: exitInterrupted}
	}
	select {
	case r.signals <- got:
	default: // there are others
	}
	return opened, nil
}

// ends reports whether a signal is to end a run. A reader that went away does not
// concern the jobs.
func ends(s os.Signal, terminal bool) bool {
	return s != syscall.SIGPIPE && (s != syscall.SIGHUP || hungUp(terminal))
}

// open hands the jobs over, or has those go on that were.
func (r *handedRun) open(ctx context.Context) (opened api.OpenedRun, err error) {
	if r.status, err = r.running.Status(ctx); err != nil {
		return opened, err
	}
	if r.src.resume {
		list, err := r.running.Runs(ctx)
		if err != nil {
			return opened, err
		}
		newest, err := newestRun(list)
		if err != nil {
			return opened, err
		}
		opened, err = r.running.ContinueRun(ctx, newest.Batch, api.ContinueRun{Env: r.runs.con.values(newest.Env)})
		return opened, r.refused(err)
	}
	run, err := r.src.run(r.options.fresh)
	if err != nil {
		return opened, err
	}
	var names []string
	for i := range run.Specs {
		names = append(names, run.Specs[i].Env...)
	}
	in := api.Run{
		Submission: api.Submission{Source: run.Source, Digest: run.Digest, Jobs: run.Specs, Workflow: run.Workflow},
		Env:        r.runs.con.values(names), Fresh: run.Fresh,
	}
	opened, err = r.running.OpenRun(ctx, in)
	r.options.fresh = false // what is opened again is this one
	return opened, r.refused(err)
}

// values returns what this process' environment holds of the variables.
func (con *console) values(names []string) map[string]string {
	values := map[string]string{}
	for _, kv := range con.environ {
		name, value, _ := strings.Cut(kv, "=")
		for _, wanted := range names {
			if name == wanted {
				values[name] = value
			}
		}
	}
	return values
}

// refused gives the answer of the scheduler its exit code.
func (r *handedRun) refused(err error) error {
	p, ok := errors.AsType[*api.Problem](err)
	switch {
	case err == nil || errors.Is(err, client.ErrNotRunning):
		return err
	case ok && p.Name() == "run_changed":
		return usage(err, changedHints()...)
	case ok && p.Name() == "no_server":
		return usage(fmt.Errorf("state directory %s is in use by a run with process id %d, which ends with its own jobs", r.peer.Name(), r.status.PID),
			"`scheduler submit` gives it these jobs, too; its end waits for theirs", "or wait for its end, or use another directory with --state DIR")
	}
	return mends(notRunning(err, "`scheduler run FILE` runs the jobs and ends with them"))
}

// wait shows how the jobs fare until they have ended, or were stopped.
func (r *handedRun) wait(ctx context.Context, batch job.BatchID) error {
	o := r.options
	r.batch = batch
	r.peer.BePatient() // its scheduler may be killed while it answers
	batches := []job.BatchID{batch}
	entries, err := r.peer.JobsOf(ctx, batches)
	if err != nil {
		return err
	}
	f := newFollower(r.peer, batches, r.runs.con.followView(entries, o.plain))
	f.enough = r.enough
	r.out = terminal.Beside(f.view, r.runs.con.stderr)
	defer f.view.Done() // whatever happens, the terminal is given back
	stop := r.onSignals(ctx)
	_, err = f.follow(ctx)
	stop()
	f.view.Done()
	if err == nil && r.stopping.Load() {
		err = &exitError{code: exitInterrupted}
	}
	if sumErr := r.runs.closeBatches(ctx, r.peer, batches, o, err); sumErr != nil {
		return sumErr
	}
	return err
}

// onSignals stops the jobs at the first signal to end, at once at the second.
func (r *handedRun) onSignals(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	terminal := hasTerminal()
	go func() {
		defer close(ended)
		for {
			select {
			case got := <-r.signals:
				if !ends(got, terminal) {
					continue
				}
			case <-ctx.Done():
				return
			}
			again := r.stopping.Swap(true)
			if !again {
				fmt.Fprintln(r.out, "stopping: running jobs are told to stop, and the same command continues them; once more stops them at once")
			}
			if err := r.running.StopRun(ctx, r.batch, again); err != nil && ctx.Err() == nil && !errors.Is(err, client.ErrNotRunning) {
				fmt.Fprintf(r.out, "stop the jobs: %v\n", err)
			}
		}
	}()
	return func() {
		signal.Stop(r.signals)
		cancel()
		<-ended
	}
}

// enough is asked after each look at the jobs. A run that is being stopped is over
// when nothing of it runs, or nobody is there to run it. Another scheduler than
// before has to be given the run again: it does not know the caller's variables.
func (r *handedRun) enough(ctx context.Context, entries []api.Job) (bool, error) {
	running := false
	for i := range entries {
		running = running || entries[i].State == job.Dispatched
	}
	if r.stopping.Load() && !running {
		return true, nil
	}
	if time.Since(r.asked) < lookEvery {
		return false, nil
	}
	r.asked = time.Now()
	status, err := r.running.Status(ctx)
	switch {
	case errors.Is(err, client.ErrNotRunning) && r.stopping.Load():
		return true, nil
	case errors.Is(err, client.ErrNotRunning):
		if !r.alone {
			fmt.Fprintf(r.out, "no scheduler works on %s any more: the jobs wait for the next one; Ctrl-C ends the wait, and then the same command runs them itself\n", r.peer.Name())
		}
		r.alone = true
		return false, nil
	case err != nil || status.Stopping:
		return false, nil // it is about to end
	}
	r.alone = false
	if !status.Started.Equal(r.status.Started) {
		if r.stopping.Load() {
			return true, nil
		}
		if _, err := r.open(ctx); err != nil && !errors.Is(err, client.ErrNotRunning) && !cutOff(err) {
			return false, err
		}
		return false, nil
	}
	stopped, err := r.isStopped(ctx)
	if err != nil || !stopped || r.stopping.Load() || running {
		return false, err
	}
	fmt.Fprintln(r.out, "another command has stopped this run")
	return true, &exitError{code: exitInterrupted}
}

// cutOff reports whether a scheduler that was asked has gone without an answer.
func cutOff(err error) bool {
	_, ok := errors.AsType[*url.Error](err)
	return ok
}

// isStopped reports whether the scheduler runs nothing of the batch.
func (r *handedRun) isStopped(ctx context.Context) (bool, error) {
	run, err := r.peer.run(ctx, r.batch)
	return run.Stopped, err
}

// run returns a run that is not closed; an empty one if it is.
func (p *peer) run(ctx context.Context, id job.BatchID) (api.RunStatus, error) {
	list, err := p.Runs(ctx)
	for i := range list {
		if list[i].Batch == id {
			return list[i], nil
		}
	}
	return api.RunStatus{}, p.refused(err)
}

// FailedTeams returns the teams of a run that have given up.
func (p *peer) FailedTeams(ctx context.Context, id job.BatchID) ([]api.FailedTeam, error) {
	run, err := p.run(ctx, id)
	return run.FailedTeams, err
}
