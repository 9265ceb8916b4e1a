// Package act holds what the fault suite's workers (internal/faults/puppet)
// are told to do, and what they tell the suite while they live: an Act comes in
// with the job's instructions, and each process of a worker keeps a connection
// to the suite for as long as it lives, on which it sends Words, one
// JSON object a line, and waits for a line in answer to each.
package act

import "strings"

// Kind is what a worker does.
type Kind string

const (
	Succeed Kind = "succeed" // works for a while, tells the suite, says so
	Fail    Kind = "fail"    // says that it failed with Act.Class
	Crash   Kind = "crash"   // dies of a signal of its own
	Half    Kind = "half"    // writes half a line of its protocol and dies
	Lie     Kind = "lie"     // says that it succeeded and exits with status 7
	Hang    Kind = "hang"    // does nothing until it is stopped
	Flood   Kind = "flood"   // prints Act.Lines lines as fast as it can, then succeeds
	Eat     Kind = "eat"     // takes 96 MiB, then succeeds
	Overrun Kind = "overrun" // consumes tokens until it is stopped
	Wait    Kind = "wait"    // succeeds when the suite says so, and shows now and then that it lives
)

// Act is what a worker does in one attempt.
type Act struct {
	Do     Kind   `json:"do"`
	Millis int    `json:"ms,omitempty"`     // how long it works before its end
	Class  string `json:"class,omitempty"`  // of Fail
	Lines  int    `json:"lines,omitempty"`  // of Flood
	Tokens int64  `json:"tokens,omitempty"` // consumed, in two parts

	Deaf    bool `json:"deaf,omitempty"`    // ignores SIGINT, SIGTERM and the cancel line
	Forks   int  `json:"forks,omitempty"`   // children that do not end by themselves
	Daemons int  `json:"daemons,omitempty"` // likewise, in sessions of their own and of no known parent
	Naked   bool `json:"naked,omitempty"`   // its daemons have cleared their environment
}

// Of returns the act for an attempt, counted from 1: the last one is repeated.
func Of(acts []Act, attempt int) Act { return acts[min(max(attempt, 1), len(acts))-1] }

// Word is what a process of a worker tells the suite.
type Word struct {
	// Hello: the process is there. The fields below it are sent with it.
	Hello bool   `json:"hello,omitempty"`
	Run   string `json:"run,omitempty"`  // AGENTSCHED_RUN of the worker
	Job   string `json:"job,omitempty"`  // the job's name
	Kind  string `json:"kind,omitempty"` // of worker
	Role  Role   `json:"role,omitempty"`
	Pid   int    `json:"pid,omitempty"` // as the process knows it, which may be in a namespace of its own

	// Used is how many tokens the worker will say next that it consumed.
	Used int64 `json:"used,omitempty"`
	// Done: the work was done; the result follows. It is the job's side effect.
	Done bool `json:"done,omitempty"`
	// Ready asks whether a Wait may end; the answer comes when it may. If it is
	// Again, the attempt is to fail, and to be made again elsewhere.
	Ready bool `json:"ready,omitempty"`
}

// Again is the answer, instead of any other, that ends an attempt.
const Again = "again\n"

// Role is which process of a worker it is.
type Role string

const (
	Leader Role = "leader" // the worker itself
	Child  Role = "child"  // one that it forked
	Daemon Role = "daemon" // one that left its session
)

// Address is that of the suite for net.Dial: its SOCKET is the path of a Unix socket,
// or HOST:PORT@PATH where a process may connect by TCP alone.
func Address(socket string) (network, address string) {
	if tcp, _, ok := strings.Cut(socket, "@"); ok {
		return "tcp", tcp
	}
	return "unix", socket
}

// Answer is what a Wait and every other completed run answers: its tag, so
// that a result shows which run it is of.
func Answer(run string) string { return "done by " + run }
