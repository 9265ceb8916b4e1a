package proc

import (
	"fmt"
	"strconv"
	"strings"
)

// When the host's memory runs out, the kernel ends the process with the highest score: its share of the memory in
// thousandths, plus its adjustment (proc_pid_oom_score_adj(5)). A run is to die before its core and a core before the
// scheduler, so each is adjusted upwards from the process that started it. No privilege is needed for that.
const (
	CoreOOMScore = 400 // of a core, above the scheduler's
	runOOMScore  = 400 // of a run, above its core's
	maxOOMScore  = 1000
)

// AddOOMScore adds to the adjustment of this process. It must be called before the process is made undumpable, since
// then only root may write the file.
func AddOOMScore(by int) error { return addOOMScore("self", by) }

// dieFirst makes the tree the kernel's choice before this process. A child inherits the
// adjustment; what the leader has forked already, on a slow host, is found by the cgroup.
func (t *Tree) dieFirst() error {
	leader := strconv.Itoa(t.pid)
	err := addOOMScore(leader, runOOMScore)
	seen := map[string]bool{leader: true}
	for grown := t.sys.cg.dir != ""; grown; {
		grown = false
		for _, pid := range words(t.sys.cg.dir, "cgroup.procs") {
			if !seen[pid] {
				seen[pid], grown = true, true
				_ = addOOMScore(pid, runOOMScore) // it may have ended
			}
		}
	}
	return err
}

// addOOMScore sets the adjustment of a process to that of this one and so much more.
func addOOMScore(pid string, by int) error {
	text, err := readFile("/proc/self/oom_score_adj")
	if err != nil {
		return fmt.Errorf("adjust the OOM score: %w", err)
	}
	own, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err == nil {
		err = writeFile("/proc/"+pid+"/oom_score_adj", strconv.Itoa(min(own+by, maxOOMScore)))
	}
	if err != nil {
		return fmt.Errorf("adjust the OOM score of process %s: %w", pid, err)
	}
	return nil
}
