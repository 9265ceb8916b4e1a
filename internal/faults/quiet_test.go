//go:build linux

package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/agentsched/agentsched/internal/supervisor"
	"github.com/agentsched/agentsched/internal/testrun"
)

// What scheduler and cores have when nothing but the sentinel is left, as a run
// without any fault has it, and very little room: what grows with what happens
// passes it soon.
const (
	coreGoroutines      = 12 + 12 + 3 // a core's own, a strict run's, room
	coreFiles           = 14 + 18 + 2 // likewise; three of its own are its fuse: two pipes and the pidfd
	schedulerFiles      = 15 + 3      // three of them the audit log's; and for each core:
	schedulerCoreFiles  = 5           // its pipes, its pidfd and that by which its end is awaited
	databaseFiles       = 16 + 2      // the last two are of the connection that reads what is queued
	schedulerGoroutines = 40          // and for each core:
	coreRoutines        = 12

	// A core that does not answer when it starts has 30 s to do so, and metrics
	// are told each 10 s if nothing happens.
	quietWithin = 45 * time.Second
	quietLook   = 50 * time.Millisecond
	quietAnswer = 2 * time.Second
)

// quiet waits until scheduler and cores have given back what the runs took: a
// core that does not is a leak. The figures come when they come, so it looks at
// intervals.
func (s *scene) quiet(ctx context.Context, r *run) error {
	look := time.NewTicker(quietLook)
	defer look.Stop()
	end := testrun.NewTimer(s.tb, quietWithin)
	defer end.Stop()
	for {
		noise := s.noise(ctx, r)
		if noise == "" {
			return nil
		}
		select {
		case <-look.C:
		case <-r.ended:
			return s.excused(r)
		case <-end.C:
			return fmt.Errorf("nothing but the sentinel is left, and still after %s: %s", quietWithin, noise)
		}
	}
}

// noise says what is not as it is when all is quiet.
func (s *scene) noise(ctx context.Context, r *run) string {
	client := s.client()
	defer client.Close()
	ctx, end := context.WithTimeout(ctx, quietAnswer)
	defer end()
	st, err := client.Status(ctx)
	if err != nil {
		return fmt.Sprintf("the scheduler's status: %v", err)
	}
	var noise []string
	say := func(format string, args ...any) { noise = append(noise, fmt.Sprintf(format, args...)) }
	if st.Running != 1 {
		say("%d jobs run", st.Running)
	}
	inflight, up := 0, 0
	for _, c := range st.Cores {
		if c.State != string(supervisor.Up) {
			continue
		}
		up++
		var m struct {
			Inflight   int  `json:"worker_inflight_count"`
			Goroutines *int `json:"core_goroutines"`
		}
		if err := json.Unmarshal(c.Metrics, &m); err != nil {
			say("core %d has no metrics: %v", c.Index, err)
			continue
		}
		inflight += m.Inflight
		if m.Goroutines == nil {
			say("core %d does not tell its goroutines", c.Index)
		} else if *m.Goroutines > coreGoroutines {
			say("core %d runs %d goroutines", c.Index, *m.Goroutines)
		}
		if n, what := openFiles(c.PID); n > coreFiles {
			say("core %d has %d files open: %v", c.Index, n, what)
		}
	}
	if up != s.plan.Cores {
		say("%d of %d cores are up", up, s.plan.Cores)
	}
	if inflight != 1 {
		say("worker_inflight_count is %d", inflight)
	}
	n, what := openFiles(r.cmd.Process.Pid)
	database := 0
	for file, k := range what {
		if strings.HasPrefix(file, filepath.Join(s.state, "queue.db")) {
			database += k // the pool has as many as were needed at once
		}
	}
	if n-database > schedulerFiles+schedulerCoreFiles*s.plan.Cores || database > databaseFiles {
		say("the scheduler has %d files open: %v", n, what)
	}
	return strings.Join(noise, "; ")
}

// openFiles counts what a process has open, in all and by what it is.
func openFiles(pid int) (int, map[string]int) {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, _ := os.ReadDir(dir)
	kinds := map[string]int{}
	n := 0
	for _, e := range entries {
		what, err := os.Readlink(filepath.Join(dir, e.Name()))
		if err != nil {
			continue // closed meanwhile
		}
		what, _, _ = strings.Cut(what, ":[")
		kinds[what]++
		n++
	}
	return n, kinds
}

// countGoroutines ends the scheduler with SIGQUIT, upon which it tells all its
// goroutines, and counts them.
func (s *scene) countGoroutines(r *run) error {
	r.struck = append(r.struck, killScheduler) // its end is none of its doing
	if r.cmd.Process.Signal(syscall.SIGQUIT) != nil {
		return nil
	}
	<-r.ended
	text := r.stderr.String()
	if n := strings.Count(text, "\ngoroutine "); n > schedulerGoroutines+coreRoutines*s.plan.Cores {
		return fmt.Errorf("when all was quiet, the scheduler had %d goroutines", n)
	}
	return nil
}
