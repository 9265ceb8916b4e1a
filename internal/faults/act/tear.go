package act

import "time"

// What a core that stands between the scheduler and the real one is told, in
// its environment.
const (
	CoreVariable = "AGENTSCHED_FAULTS_CORE" // the real core's program
	TearVariable = "AGENTSCHED_FAULTS_TEAR" // []Tear, as JSON
	DirVariable  = "AGENTSCHED_FAULTS_DIR"  // where it keeps which were done
)

// Tear is one harm done to the conversation of scheduler and core. Each is
// done by one core process; those that come after the last are real cores.
type Tear struct {
	Do TearKind `json:"do"`
	// Frame is which frame of the core to the scheduler it strikes, counted from
	// 1; with Calls, of the scheduler to the core.
	Frame int  `json:"frame"`
	Calls bool `json:"calls,omitempty"`
}

// TearKind is a harm.
type TearKind string

const (
	Cut     TearKind = "cut"     // half of the frame, then the core is dead
	Garbage TearKind = "garbage" // a line that is no JSON comes before it
	Twice   TearKind = "twice"   // it comes two times
	Huge    TearKind = "huge"    // a line of 2 MiB comes before it
	Late    TearKind = "late"    // it and all after it come TearDelay later
	Mute    TearKind = "mute"    // it and all after it never come
)

// TearKinds lists every harm.
func TearKinds() []TearKind { return []TearKind{Cut, Garbage, Twice, Huge, Late, Mute} }

// TearDelay is how late Late is.
const TearDelay = 300 * time.Millisecond
