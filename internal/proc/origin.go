package proc

import "errors"

// ErrGone is returned for a process that has ended.
var ErrGone = errors.New("the process has ended")

// Origin is what tells where a process comes from.
type Origin struct {
	Proc
	// Above are its ancestors, the nearest first, up to this process or to the
	// first that is an ancestor of this process, too. Neither is among them.
	Above []ProcInfo
	// Below says that it descends from this process.
	Below bool
	// Tree is the run of the host's tree that it descends from by birth; "" if none.
	Tree string
	// Inherited says that it descends from a child that this process had before it
	// had a host, as a program has that replaced another (execve(2)).
	Inherited bool
	// Tag is the value of the tag variable in its environment; "" if there is none,
	// or the environment cannot be read.
	Tag string
	// Marked says that it has the mark of a process that has called MarkDescendants, and this process has not.
	Marked bool
	// Cgroups are the paths of its cgroups, in all hierarchies.
	Cgroups []string
}
