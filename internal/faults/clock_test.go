//go:build linux

package faults

import (
	"bufio"
	"fmt"
	"os/exec"
	"testing"
	"time"
)

// TestJumpClock: what the scenarios rely on. The process's wall clock jumps
// there and back, its monotonic one does not.
func TestJumpClock(t *testing.T) {
	if !canJump {
		t.Skip("on linux/amd64 only")
	}
	cmd := exec.CommandContext(t.Context(), program("puppet"), "clock", "", "")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	var began time.Duration
	for i, by := range []time.Duration{0, 2 * time.Hour, -2 * time.Hour, 0} {
		if i > 0 { // at first, the vDSO is as it was
			if err := jumpClock(cmd.Process.Pid, by); err != nil {
				t.Fatal(err)
			}
		}
		fmt.Fprintln(in, "what time is it?")
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		var wall, monotonic int64
		if _, err := fmt.Sscan(line, &wall, &monotonic); err != nil {
			t.Fatal(err)
		}
		if off := time.Until(time.Unix(0, wall)) - by; off.Abs() > 10*time.Second {
			t.Errorf("after a jump of %s, the wall clock is %s off", by, off)
		}
		if i == 0 {
			began = time.Duration(monotonic)
		} else if passed := time.Duration(monotonic) - began; passed < 0 || passed > time.Minute {
			t.Errorf("after a jump of %s, the monotonic clock went by %s", by, passed)
		}
	}
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
