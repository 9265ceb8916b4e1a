package node

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
)

// Versions of the messages of channel 0. A scheduler takes a node if their ranges overlap, and
// both speak the highest version that is in both.
const (
	MinProtocol = 1
	MaxProtocol = 1
)

// HeaderProtocols is the header of a scheduler's answer to a request for a link: the versions that it speaks, as "1-2".
const HeaderProtocols = "Agentsched-Node-Protocols"

// Messages of channel 0.
const (
	methodHello   = "node_hello"   // node → scheduler: Hello → Welcome; the first one, once in a session
	notifyOffer   = "node_offer"   // node → scheduler: Inventory, when it is another one than before
	notifyNotes   = "node_notes"   // node → scheduler: Notes, in order
	notifySettled = "node_settled" // scheduler → node: Settled
	methodRestart = "node_restart" // scheduler → node: Restart → ipc.Empty
)

// Hello says who a node is, and what it has.
type Hello struct {
	MinProtocol int    `json:"min_protocol"`
	MaxProtocol int    `json:"max_protocol"`
	Version     string `json:"version"`
	// Process is a random text of the node's process: of an earlier one nothing is left but what is in the spool.
	Process   string    `json:"process"`
	Inventory Inventory `json:"inventory"`
	Cores     []CoreUp  `json:"cores,omitempty"` // that are up
	// Isolated are the places where no core is started for a while.
	Isolated []CoreIsolated `json:"isolated,omitempty"`
	Runs     []Held         `json:"runs,omitempty"` // that it has, and those whose end it has to tell
}

// Inventory is what a node offers.
type Inventory struct {
	Host    string            `json:"host"` // its name
	OS      string            `json:"os"`   // as Go names it
	Arch    string            `json:"arch"`
	CPUs    int               `json:"cpus"`
	Memory  int64             `json:"memory"`           // bytes that jobs may have; 0: unknown
	Slots   int               `json:"slots"`            // jobs at once
	Labels  map[string]string `json:"labels,omitempty"` // that its owner gives it
	Workers []Worker          `json:"workers,omitempty"`
	Mirrors []string          `json:"mirrors,omitempty"` // of repositories, that it has; see job.Workspace.Mirror. Sorted
	// Sandbox is the level at which runs are held whose job names none.
	Sandbox job.SandboxLevel `json:"sandbox,omitempty"`
	// Levels are those that a job may name: the host can hold runs so, and its configuration allows it. Absent, as from a
	// node of an earlier release: it does not say. No job is placed on a node that has none.
	Levels []job.SandboxLevel `json:"levels"`
}

// Worker is a kind of worker that a node has.
type Worker struct {
	Kind    job.WorkerKind `json:"kind"`
	Version string         `json:"version,omitempty"`
	Ready   bool           `json:"ready"`         // it is there and logged in, as far as that can be told
	Why     string         `json:"why,omitempty"` // it is not
}

// CoreUp is a core that takes work, once its scheduler has configured it.
type CoreUp struct {
	Place int             `json:"place"` // 1, 2, …; 0 stands for the cores of earlier processes of the node
	Life  int             `json:"life"`  // 1, 2, …: the one that takes its place has another
	PID   int             `json:"pid"`
	Info  ipc.HelloResult `json:"info"`
}

// CoreDown is a core that is dead, with all of its processes.
type CoreDown struct {
	Place    int    `json:"place"`
	Life     int    `json:"life"`
	Cause    string `json:"cause"`
	Replaced bool   `json:"replaced,omitempty"` // on purpose
}

// CoreDraining is a core that takes no new work any more.
type CoreDraining struct {
	Place int    `json:"place"`
	Life  int    `json:"life"`
	Why   string `json:"why"`
	Wait  bool   `json:"wait,omitempty"` // until its last run has ended
}

// CoreIsolated is a core in a crash loop: none is started in its place for a while.
type CoreIsolated struct {
	Place int          `json:"place"`
	For   job.Duration `json:"for"` // 0: one is tried again
	Cause string       `json:"cause,omitempty"`
}

// Held is a run that a node has, or whose end it has to tell.
type Held struct {
	Job     job.ID `json:"job"`
	Attempt int    `json:"attempt"`
	Place   int    `json:"place"`
}

// Welcome answers Hello.
type Welcome struct {
	Protocol int            `json:"protocol"`
	Version  string         `json:"version"`  // the scheduler's
	Instance job.InstanceID `json:"instance"` // the scheduler's
	Name     string         `json:"name"`     // the node's, by its token
	// Lease is for how long the node's runs are valid after a heartbeat that was answered.
	Lease    job.Duration  `json:"lease"`
	Settings ipc.Configure `json:"settings"` // for cores that start
	Verdicts []Verdict     `json:"verdicts,omitempty"`
}

// Verdict answers a Held, in the same order.
type Verdict struct {
	Counts bool  `json:"counts"` // else the node stops the run, and forgets what it said
	Events int64 `json:"events"` // the number of the last event that is stored
}

// Notes is a record of the node's spool: what its cores have told, in order.
type Notes struct {
	Number uint64 `json:"number"` // of the record
	Notes  []Note `json:"notes"`
}

// Note is something that a core has told, or what became of one.
type Note struct {
	Place  int             `json:"place"`
	Life   int             `json:"life"`
	Method string          `json:"method"` // a notification of package ipc, or one of those below
	Params json.RawMessage `json:"params"`
}

// Methods of notes about a core itself.
const (
	noteUp       = "core_up"       // CoreUp
	noteDown     = "core_down"     // CoreDown
	noteDraining = "core_draining" // CoreDraining
	noteIsolated = "core_isolated" // CoreIsolated
)

// Settled says up to where the scheduler has dealt with what the node has told: the node forgets it.
type Settled struct {
	Taken uint64       `json:"taken,omitempty"` // the number of the last record that was read; 0: as before
	Runs  []RunSettled `json:"runs,omitempty"`
	// Resume has the cores that are in a crash loop tried again at once: somebody has lifted the node's isolation.
	Resume bool `json:"resume,omitempty"`
}

// RunSettled says what is stored of a run.
type RunSettled struct {
	Job     job.ID `json:"job"`
	Attempt int    `json:"attempt"`
	Events  int64  `json:"events,omitempty"` // the number of the last event that is stored; 0: as before
	Over    bool   `json:"over,omitempty"`   // nothing more is stored of it
}

// Restart asks for another core in a place.
type Restart struct {
	Place int  `json:"place"`
	Drain bool `json:"drain,omitempty"`
}

// negotiate returns the highest version of channel 0 that both ends speak.
func negotiate(h *Hello) (int, error) {
	v := min(h.MaxProtocol, MaxProtocol)
	if v < max(h.MinProtocol, MinProtocol) {
		return 0, fmt.Errorf("node %s speaks versions %d to %d of the protocol, this scheduler %d to %d; upgrade the older one", h.Version, h.MinProtocol, h.MaxProtocol, MinProtocol, MaxProtocol)
	}
	return v, nil
}

// pace returns how often a heartbeat is sent so that a lease holds, and after which silence a connection is given up.
func pace(lease time.Duration) (heartbeat, silence time.Duration) { return lease / 4, lease / 2 }
