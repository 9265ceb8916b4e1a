package proc

import (
	"fmt"
	"strconv"
	"strings"
)

// Limits bound what a process tree may use of the host. 0 is no limit.
type Limits struct {
	Memory    int64   // bytes of memory, what was swapped out included
	Processes int64   // processes and threads
	CPU       float64 // CPUs, e.g. 1.5
}

// Controllers of the kernel that enforce Limits.
const (
	MemoryController    = "memory"
	ProcessesController = "pids"
	CPUController       = "cpu"
)

// controllers in the order in which a tree joins them.
var controllers = []string{MemoryController, ProcessesController, CPUController}

// of returns the limit that a controller enforces, and whether there is one.
func (l Limits) of(controller string) (limit float64, limited bool) {
	switch controller {
	case MemoryController:
		limit = float64(l.Memory)
	case ProcessesController:
		limit = float64(l.Processes)
	case CPUController:
		limit = l.CPU
	}
	return limit, limit > 0
}

// Needs lists the controllers that are needed to enforce l.
func (l Limits) Needs() (names []string) {
	for _, name := range controllers {
		if _, limited := l.of(name); limited {
			names = append(names, name)
		}
	}
	return names
}

// Exceeded is a limit that a tree has met: the kernel has killed one of its processes for want of memory, or has refused
// it another process.
type Exceeded struct {
	Controller string // MemoryController or ProcessesController
	// Limit of the tree in bytes or processes. 0: it has none of its own.
	Limit int64
	// Own says that the tree met its own limit, not that of all trees together or what the host has.
	Own bool
	// Total is the limit of all trees together, 0 if there is none.
	Total int64
}

// Bytes writes a number of bytes for people, e.g. "1.5 GiB".
func Bytes(n int64) string {
	for _, u := range []struct {
		name string
		size int64
	}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n >= u.size {
			return strings.TrimSuffix(strconv.FormatFloat(float64(n)/float64(u.size), 'f', 1, 64), ".0") + " " + u.name
		}
	}
	return fmt.Sprintf("%d B", n)
}
