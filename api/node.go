package api

import (
	"time"

	"github.com/agentsched/agentsched/job"
)

// States of a FleetNode.
const (
	// NodeConnected: the scheduler hears it.
	NodeConnected = "connected"
	// NodeCutOff: it is not heard now; its runs go on, and are still its own.
	NodeCutOff = "cut off"
	// NodeLost: it was not heard for so long that its jobs go on elsewhere.
	NodeLost = "lost"
	// NodeUnknown: it has not come since this scheduler leads, and is cordoned, isolated, or has jobs
	// that an earlier scheduler has left there.
	NodeUnknown = "unknown"
)

// FleetNode is a host that runs jobs for the scheduler.
type FleetNode struct {
	// Name is that of its token.
	Name string `json:"name"`
	// State is connected, cut off, lost, or unknown if it has not come since this scheduler leads.
	State string `json:"state"`
	// Host is what it calls itself.
	Host string `json:"host,omitempty"`
	// OS is its operating system, as Go names it.
	OS string `json:"os,omitempty"`
	// Arch is its architecture, as Go names it.
	Arch string `json:"arch,omitempty"`
	// CPUs is how many it has.
	CPUs int `json:"cpus,omitempty"`
	// Memory is what all of its jobs may have, in bytes. Absent: unknown.
	Memory int64 `json:"memory,omitempty"`
	// Slots is how many jobs it runs at once.
	Slots int `json:"slots"`
	// Running is how many jobs it has.
	Running int `json:"running"`
	// Labels are those that its owner gives it.
	Labels map[string]string `json:"labels"`
	// Workers are the kinds of worker that it has.
	Workers []NodeWorker `json:"workers"`
	// Sandbox is the level at which its runs are confined.
	Sandbox string `json:"sandbox,omitempty"`
	// Version is that of its program.
	Version string `json:"version,omitempty"`
	// Cordon says why it is given no new jobs. Absent: it is given some.
	Cordon *Cordon `json:"cordon,omitempty"`
	// Isolation says what is wrong with it, so that it is given no new jobs. Absent: nothing is.
	Isolation *Isolation `json:"isolation,omitempty"`
	// IsolatedParts are the kinds of worker and folders that are isolated on it alone: it is given no
	// jobs that need one of them. Absent: there are none.
	IsolatedParts []Isolation `json:"isolated_parts,omitempty"`
	// Since is when its process was seen first.
	Since time.Time `json:"since,omitzero"`
	// Seen is when it was heard last.
	Seen time.Time `json:"seen,omitzero"`
	// RoundTrip is how long its last heartbeat took. Absent: it is not connected.
	RoundTrip job.Duration `json:"round_trip,omitempty"`
	// Lost is how often it was lost since this scheduler leads.
	Lost int `json:"lost,omitempty"`
	// Cores are its agentcores, by index.
	Cores []Core `json:"cores"`
}

// NodeWorker is a kind of worker that a node has.
type NodeWorker struct {
	// Kind is its name.
	Kind job.WorkerKind `json:"kind"`
	// Version is that of its program.
	Version string `json:"version,omitempty"`
	// Ready is set if it is there and logged in, as far as the node can tell.
	Ready bool `json:"ready"`
	// Why says why it is not ready, or what is to be known of it.
	Why string `json:"why,omitempty"`
}

// Cordon says why a node is given no new jobs.
type Cordon struct {
	// Why is for whoever wonders.
	Why string `json:"why,omitempty"`
	// By is who asked for it.
	By string `json:"by,omitempty"`
	// Since is when.
	Since time.Time `json:"since"`
}

// FleetNodes are the hosts that run jobs for the scheduler.
type FleetNodes struct {
	// Nodes are ordered by name.
	Nodes []FleetNode `json:"nodes"`
}

// CordonNode has a node be given no new jobs. What runs there goes on.
type CordonNode struct {
	// Why is for whoever wonders, at most 500 bytes.
	Why string `json:"why,omitempty"`
	// By is who asks. Who is known to have asked stands in its place.
	By string `json:"by,omitempty"`
}

// How DrainNode empties a node.
const (
	// DrainWait lets what runs there end.
	DrainWait = "wait"
	// DrainCheckpoint stops what keeps steps at the boundary of its next one, and lets the rest end.
	DrainCheckpoint = "checkpoint"
	// DrainStop stops what runs there in stages; its jobs go on elsewhere, and no attempt counts.
	DrainStop = "stop"
)

// DrainModes are how DrainNode may empty a node.
func DrainModes() []string { return []string{DrainWait, DrainCheckpoint, DrainStop} }

// DrainNode cordons a node, and empties it.
type DrainNode struct {
	// Mode is wait, checkpoint or stop. Absent: wait.
	Mode string `json:"mode,omitempty"`
	// Why is as in a cordon.
	Why string `json:"why,omitempty"`
	// By is as in a cordon.
	By string `json:"by,omitempty"`
}

// RemovedNode is what became of a node that was removed.
type RemovedNode struct {
	// Name is the node's.
	Name string `json:"name"`
	// Jobs is how many jobs it had, which go on elsewhere.
	Jobs int `json:"jobs"`
}
