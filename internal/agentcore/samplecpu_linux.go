package agentcore

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// tick is the unit of CPU times in /proc: USER_HZ is 100 on every architecture
// of Linux that Go runs on (include/uapi/asm-generic/param.h).
const tick = time.Second / 100

// stat is what is read of /proc/PID/stat, see proc_pid_stat(5).
type stat struct {
	own      time.Duration // utime + stime
	children time.Duration // cutime + cstime: of children that ended and were waited for
}

func readStat(pid string) (stat, error) {
	line, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return stat{}, err
	}
	return parseStat(line)
}

// parseStat counts the fields from the last parenthesis: the command name, in
// parentheses, may hold anything.
func parseStat(line []byte) (stat, error) {
	fields := bytes.Fields(line[bytes.LastIndexByte(line, ')')+1:]) // fields[0] is field 3
	if len(fields) < 15 {
		return stat{}, fmt.Errorf("parse process stat %q: unknown format", line)
	}
	var times [4]int64 // fields 14 to 17
	for i := range times {
		n, err := strconv.ParseInt(string(fields[11+i]), 10, 64)
		if err != nil {
			return stat{}, fmt.Errorf("parse process stat %q: %w", line, err)
		}
		times[i] = n
	}
	return stat{
		own:      time.Duration(times[0]+times[1]) * tick,
		children: time.Duration(times[2]+times[3]) * tick,
	}, nil
}

// CPUOf returns the CPU time that the processes of a list have used, and their
// children that ended and were waited for. Processes that are gone are left
// out, so the sum can be smaller than the one before. If none is left, the
// error matches os.ErrProcessDone.
func CPUOf(pids []int) (time.Duration, error) {
	var sum time.Duration
	alive := 0
	for _, pid := range pids {
		s, err := readStat(strconv.Itoa(pid))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("read CPU time of process %d: %w", pid, err)
		}
		sum += s.own + s.children
		alive++
	}
	if alive == 0 {
		return 0, fmt.Errorf("read CPU time of processes %v: %w", pids, os.ErrProcessDone)
	}
	return sum, nil
}

// CPUOfCgroup returns the CPU time that was ever used in a cgroup v2 and the
// cgroups below it. The folder is the cgroup's, e.g.
// "/sys/fs/cgroup/agentsched-1".
func CPUOfCgroup(dir string) (time.Duration, error) {
	text, err := os.ReadFile(filepath.Join(dir, "cpu.stat"))
	if err != nil {
		return 0, fmt.Errorf("read CPU time of cgroup: %w", err)
	}
	// Documentation/admin-guide/cgroup-v2.rst: usage_usec is always there, whether
	// the cpu controller is enabled or not.
	for line := range bytes.Lines(text) {
		if value, ok := bytes.CutPrefix(line, []byte("usage_usec ")); ok {
			us, err := strconv.ParseInt(string(bytes.TrimSpace(value)), 10, 64)
			if err != nil {
				return 0, fmt.Errorf("read CPU time of cgroup %s: %w", dir, err)
			}
			return time.Duration(us) * time.Microsecond, nil
		}
	}
	return 0, fmt.Errorf("read CPU time of cgroup %s: no usage_usec in its cpu.stat: %w", dir, ErrUnknown)
}
