package proc

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// firstMark is the mark of a process that has none above it.
const firstMark = 1 << 62

// MarkDescendants marks this process and all that descends from it from now on, for Origin.
//
// A process that has lost its parents to a kill, left its session and cleared its environment is in no way tied to where
// it came from. What it does keep are its resource limits, of which only CAP_SYS_RESOURCE can raise a hard one
// (setrlimit(2)). The mark is that of RLIMIT_LOCKS, which limits nothing since Linux 2.4.25: lower than that of whoever
// judges. Within marked processes, each further mark is lower still.
func MarkDescendants() error {
	var limit unix.Rlimit
	err := unix.Prlimit(0, unix.RLIMIT_LOCKS, nil, &limit)
	if err == nil && limit.Max > 0 {
		limit.Max = min(limit.Max-1, firstMark)
		limit.Cur = limit.Max
		err = unix.Prlimit(0, unix.RLIMIT_LOCKS, &limit, nil)
	}
	if err != nil {
		return fmt.Errorf("mark the processes that this one starts: %w", err)
	}
	return nil
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
