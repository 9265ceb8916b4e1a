package ipc

import "time"

// Lease is what times a run that nobody can stop any more ends by. Its parts are those of
// the configuration that scheduler and core share.
//
//	the last extension of its claim
//	│ Extend    the next one hangs: permits are renewed meanwhile
//	│ Extend    it is given up: permits are not renewed any more, nor leases of nodes
//	│ Node      a node's lease ends: it renews no permit any more
//	├ Validity  the permits lapse: the core stops the run
//	│ Stop      the stages of that
//	│ Spare     the core was late
//	├           the fuse ends the run, if its core has not
//	│ a tenth of all that, for clocks that go differently and for the kill
//	▼ the claim ends: the job is given out again
type Lease struct {
	Extend   time.Duration // between two extensions of the claim; only for Claim
	Validity time.Duration // Configure.PermitValidity
	Stop     time.Duration // Stages.Longest of Configure.Stop
	Node     time.Duration // for how long a node's supervisor renews permits after it was heard; 0: there are no nodes
}

// Spare returns how much longer than a stop should take the fuse waits for the core, which
// notices a lapse by a sixteenth of Validity late:
//
//	(Validity + Stop) / 8
func (l Lease) Spare() time.Duration { return (l.Validity + l.Stop) / 8 }

// Fuse returns how long after the last renewal of its permit a run is ended by its fuse:
//
//	Validity + Stop + Spare
func (l Lease) Fuse() time.Duration { return l.Validity + l.Stop + l.Spare() }

// Claim returns how long a claim holds that nobody extends any more:
//
//	(2·Extend + Node + Fuse) · 11/10
func (l Lease) Claim() time.Duration {
	sum := 2*l.Extend + l.Node + l.Fuse()
	return sum + sum/10
}

// Lost returns how long after the last word of a node nothing of its runs lives:
//
//	(Node + Fuse) · 11/10
func (l Lease) Lost() time.Duration {
	sum := l.Node + l.Fuse()
	return sum + sum/10
}

// Longest returns how long a stop in these stages may take: a worker that listens is first
// asked in its own way, for as long as after SIGINT, and what outlives a worker that has
// ended then gets up to a second.
func (s Stages) Longest() time.Duration {
	kill := s.Kill.Std()
	if kill == 0 {
		kill = defaultKill
	}
	return 2*s.Interrupt.Std() + s.Terminate.Std() + min(s.Terminate.Std(), leftoverTime) + kill
}

// Parts of a stop that Stages leaves open.
const (
	defaultKill  = 10 * time.Second // a Kill of 0
	leftoverTime = time.Second      // at most, for what outlives its worker; worker.Runner has the same
)
