package watchdog

import (
	"fmt"
	"sync"
	"time"

	"github.com/agentsched/agentsched/job"
)

// Finding is why a run should be stopped, and as what.
type Finding struct {
	Class    job.ErrorClass
	Evidence string // a sentence for the user: what was seen, against which limit
}

// CPUTime returns the CPU time that a run's process tree has used so far. It
// may go down, when a process leaves the tree with what it had used.
type CPUTime func() (time.Duration, error)

// Stall watches one run for silence: it finds a run that has printed nothing
// for After and whose processes used less than MinCPU in that time. A run that
// computes quietly is not found, nor one whose CPU time is unknown: its
// timeout will end it. It is safe for concurrent use.
type Stall struct {
	after  time.Duration
	minCPU time.Duration

	mu     sync.Mutex
	output time.Time // of the last output, else of the start
	// Since the Check at mark, when cpu was used, there was no output (else
	// fresh is set) and less than minCPU of CPU time.
	fresh bool
	mark  time.Time
	cpu   time.Duration
}

// NewStall returns a watch over a run that starts at now; with cfg.After 0 it
// finds nothing.
func NewStall(cfg StallConfig, now time.Time) *Stall {
	after := cfg.After.Std()
	return &Stall{
		after: after, minCPU: time.Duration(cfg.MinCPURatio * float64(after)),
		output: now, fresh: true,
	}
}

// Output tells that the run printed something at now: an event, or any line.
func (s *Stall) Output(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.After(s.output) {
		s.output = now
	}
	s.fresh = true
}

// Check looks at the run at now. It is to be called several times within
// After: silence counts from the first Check that finds it.
func (s *Stall) Check(now time.Time, cpu CPUTime) (Finding, bool) {
	if s.after <= 0 {
		return Finding{}, false
	}
	used, err := cpu() // not under the lock: it reads the system
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.fresh = true // whether it computes is unknown: begin again when it is known
		return Finding{}, false
	}
	if more := used - s.cpu; s.fresh || more > 0 && more >= s.minCPU {
		s.fresh, s.mark, s.cpu = false, now, used
		return Finding{}, false
	}
	s.cpu = min(s.cpu, used) // less when a process left: count from what is there now
	idle := now.Sub(s.mark)
	if idle < s.after {
		return Finding{}, false
	}
	return Finding{Class: job.Stalled, Evidence: fmt.Sprintf(
		"the worker printed nothing for %s, and in the last %s its processes used %s of CPU time (%s or more counts as computing)",
		now.Sub(s.output).Round(time.Second), idle.Round(time.Second), (used - s.cpu).Round(10*time.Millisecond), s.minCPU)}, true
}
