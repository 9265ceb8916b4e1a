package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/agentsched/agentsched/internal/sandbox"
)

const (
	atOnce = 8
	forks  = 3000 // of a round
	bwraps = 500
	// A round of ours has as many jobs as take about pathRound.
	leastJobs, mostJobs = 200, 5000
	pathRound           = 2 * time.Second
	tspJobs             = 500
)

// pathCase is the whole way of a job, from a job file to its durable result,
// against nothing but the processes.
func pathCase(ctx context.Context, b *bench) ([]row, error) {
	program, err := b.buildPrograms(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := b.folder("path")
	if err != nil {
		return nil, err
	}
	p := &wholePath{program: program, dir: dir, jobs: leastJobs}
	got, err := p.round(ctx)
	if err != nil {
		return nil, err
	}
	p.jobs = min(max(int(got*pathRound.Seconds()), leastJobs), mostJobs)

	sides := []side{p.round, func(ctx context.Context) (float64, error) { return forkRate(ctx, atOnce, forks, "/bin/true") }}
	spooler, missing := findSpooler(ctx, dir)
	if missing == nil {
		sides = append(sides, spooler.round)
	}
	held := len(sides)
	bwrap := sandbox.Probe(ctx)
	if bwrap.Bubblewrap == nil {
		bare := bareBwrap(bwrap.Bwrap)
		sides = append(sides, (&wholePath{program: program, dir: dir, jobs: p.jobs / 4, runs: heldRuns, held: true}).round,
			func(ctx context.Context) (float64, error) {
				return forkRate(ctx, atOnce, bwraps, bare[0], bare[1:]...)
			})
	}
	s, err := turns(ctx, b.rounds, sides...)
	if err != nil {
		return nil, err
	}
	rows := []row{rates(fmt.Sprintf("whole path, %d no-op jobs, %d at a time", p.jobs, atOnce), s[0], "fork+exec", s[1], atLeast(0.5))}
	if missing != nil {
		rows = append(rows, leftOut("  the same", "task-spooler", missing))
	} else {
		rows = append(rows, rates("  the same", s[0], "task-spooler", s[2], bound{}))
	}
	const strict = "whole path, held at level strict"
	if bwrap.Bubblewrap != nil {
		return append(rows, leftOut(strict, "bare bwrap", bwrap.Bubblewrap)), nil
	}
	return append(rows, rates(strict, s[held], "bare bwrap", s[held+1], atLeast(0.5))), nil
}

// wholePath runs job files of no-op shell jobs.
type wholePath struct {
	program, dir string
	jobs         int
	runs         int
	held         bool // at the default level
}

// heldRuns is where the state directories of held runs begin to be counted.
const heldRuns = 1_000_000

// round returns the rate of jobs without what a run of a single one takes.
func (p *wholePath) round(ctx context.Context) (float64, error) {
	one, err := p.time(ctx, 1)
	if err != nil {
		return 0, err
	}
	all, err := p.time(ctx, p.jobs)
	if err != nil {
		return 0, err
	}
	if all <= one {
		return 0, fmt.Errorf("%d jobs took %s and one took %s", p.jobs, all, one)
	}
	return rate(p.jobs-1, all-one), nil
}

// time runs a file of n jobs in a state directory of its own, which stays until the end:
// ext4 without a journal goes around inodes that were removed within some minutes, one by
// one, and each round would pay for the one before.
func (p *wholePath) time(ctx context.Context, n int) (time.Duration, error) {
	p.runs++
	state := filepath.Join(p.dir, fmt.Sprint(p.runs))
	if err := os.Mkdir(state, 0o700); err != nil {
		return 0, err
	}
	return runJobs(ctx, p.program, state, filepath.Join(p.dir, "jobs.yaml"), n, p.held)
}

// runJobs writes a file of n jobs and runs it to its end.
func runJobs(ctx context.Context, program, state, file string, n int, held bool) (time.Duration, error) {
	if err := writeJobs(file, n); err != nil {
		return 0, err
	}
	c, said := command(ctx, program, state, "run", "--json", "--concurrency", fmt.Sprint(atOnce), file)
	if held {
		c.Env = append(c.Env, "AGENTSCHED_SANDBOX__LEVEL=strongest")
	}
	began := time.Now()
	if err := c.Run(); err != nil { // an exit code of 0 says that every job completed
		return 0, said.told(fmt.Errorf("run %d jobs: %w", n, err))
	}
	return time.Since(began), nil
}

func writeJobs(path string, n int) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	w := bufio.NewWriter(f)
	fmt.Fprintln(w, "jobs:")
	for i := range n {
		fmt.Fprintf(w, "  - {id: job-%d, type: TOOL, workspace: {isolation: none}, instructions: \"true\"}\n", i)
	}
	return w.Flush()
}
