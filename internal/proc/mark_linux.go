package proc

import (
	"fmt"
	"hash/fnv"
	"math"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A process that has lost its parents to a kill, left its session and cleared its environment is in no way tied to where
// it came from. What it does keep are its resource limits, of which only CAP_SYS_RESOURCE can raise a hard one
// (setrlimit(2)). The mark is that of RLIMIT_LOCKS, which limits nothing since Linux 2.4.25.
//
// Its lower bits are a hash of whose it is, and below that the number of a tree (NewMark), or 0. The bits above count down
// from firstMark with each mark that is put on a marked process: so it is lower than that of whoever judges.
const (
	firstMark = 1 << 62
	markBits  = 48
	treeBits  = 16
	nameMask  = 1<<markBits - 1<<treeBits
)

// MarkDescendants marks this process and all that descends from it from now on, for Origin, and as belonging to name, for
// SweepTag. A process that may not mark itself, as in a sandbox, and was marked before keeps that mark.
func MarkDescendants(name string) error {
	var limit unix.Rlimit
	err := unix.Prlimit(0, unix.RLIMIT_LOCKS, nil, &limit)
	if err == nil && limit.Max > 0 {
		was := limit.Max
		limit.Max = markBelow(was, name)
		limit.Cur = limit.Max
		if err = unix.Prlimit(0, unix.RLIMIT_LOCKS, &limit, nil); err == unix.EPERM && was < firstMark {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("mark the processes that this one starts: %w", err)
	}
	return nil
}

// markBelow is the mark of a name that is lower than a limit. There is none in the end; then it is a lower one of no name.
func markBelow(limit uint64, name string) uint64 {
	if level := min(limit, firstMark) >> markBits; level > 0 {
		return (level-1)<<markBits | markOf(name)
	}
	return limit - 1
}

// markOf are the lower bits of a name's marks.
func markOf(name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	return h.Sum64() & nameMask
}

// markedBy says whether a limit is a mark of that name.
func markedBy(limit uint64, name string) bool {
	return limit < firstMark && limit&nameMask == markOf(name)
}

// NewMark returns a mark for Spec.Mark, which no other live tree has: the hard limit on file locks that the leader takes upon
// itself before it starts what is not trusted. It is 0 where this process has no mark itself (MarkDescendants).
func (h *Host) NewMark() uint64 {
	own := lockLimit("self")
	level := own >> markBits
	if own >= firstMark || level == 0 {
		return 0
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for {
		h.sys.marks = h.sys.marks%(1<<treeBits-1) + 1
		mark := (level-1)<<markBits | own&nameMask | h.sys.marks
		taken := false
		for t := range h.trees {
			taken = taken || t.mark == mark
		}
		if !taken {
			return mark
		}
	}
}

// lockLimit is the hard limit RLIMIT_LOCKS of a process; the highest if it is not told. Every process can read the file,
// other than the system call.
func lockLimit(pid string) uint64 {
	text, err := readFile("/proc/" + pid + "/limits")
	if err != nil {
		return math.MaxUint64
	}
	for line := range strings.Lines(string(text)) {
		values, found := strings.CutPrefix(line, "Max file locks")
		if fields := strings.Fields(values); found && len(fields) > 1 {
			if limit, err := strconv.ParseUint(fields[1], 10, 64); err == nil {
				return limit
			}
		}
	}
	return math.MaxUint64 // "unlimited"
}
