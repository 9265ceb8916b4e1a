package api

import "time"

// Fleet is the schedulers that work on one queue: one of them leads, the others stand by.
type Fleet struct {
	// Instance is the scheduler that answers.
	Instance string `json:"instance"`
	// Leader is the term of the scheduler that leads now. Absent: nobody leads.
	Leader *FleetTerm `json:"leader,omitempty"`
	// Members are the schedulers, by host and instance.
	Members []FleetMember `json:"members"`
	// History are the latest terms, the newest first, the present one among them.
	History []FleetTerm `json:"history"`
}

// The roles of a FleetMember.
const (
	FleetLeader  = "leader"
	FleetStandby = "standby"
)

// FleetMember is a scheduler.
type FleetMember struct {
	// Instance is the id of its state directory.
	Instance string `json:"instance"`
	// Host is the name of its host.
	Host string `json:"host,omitempty"`
	// Address is where the others reach it, HOST:PORT. Absent: it works alone.
	Address string `json:"address,omitempty"`
	// Role is leader or standby.
	Role string `json:"role"`
	// Since is when it came into the role.
	Since time.Time `json:"since,omitzero"`
	// Version is that of its program.
	Version string `json:"version,omitempty"`
	// Config is a hash of its configuration: members that differ in it were not set up
	// alike. Absent: unknown.
	Config string `json:"config,omitempty"`
	// Seen is when it was heard of last.
	Seen time.Time `json:"seen,omitzero"`
}

// FleetTerm is a time in which one scheduler led.
type FleetTerm struct {
	// Epoch numbers the terms: a later one has a higher number. Absent: the scheduler
	// works alone.
	Epoch int64 `json:"epoch,omitempty"`
	// Instance is who led.
	Instance string `json:"instance"`
	// Host is the name of its host.
	Host string `json:"host,omitempty"`
	// Since is when the term began.
	Since time.Time `json:"since"`
	// Why says, for a person, why the lead came to it.
	Why string `json:"why,omitempty"`
}
