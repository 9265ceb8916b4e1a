package agentcore_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// childVariable makes this test program a child that uses the CPU as it is told.
const childVariable = "AGENTCORE_TEST_CHILD"

// coreVariable makes this test program a core on its standard streams.
const coreVariable = "AGENTCORE_TEST_CORE"

// beChild uses as much CPU time as each line of its input says, answers with a
// line, and waits for the next without using any. It ends with its input.
func beChild() error {
	fmt.Println("ready")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); fmt.Println("done") {
		burn, err := time.ParseDuration(in.Text())
		if err != nil {
			return err
		}
		for start := cpuUsed(); cpuUsed()-start < burn; {
		}
	}
	return nil
}

// cpuUsed asks getrusage(2), another source than the one under test.
func cpuUsed() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// child is such a child, which is ended and waited for at the test's end.
type child struct {
	pid   int
	cmd   *exec.Cmd
	t     *testing.T
	in    io.WriteCloser
	lines *bufio.Scanner
}

func startChild(t *testing.T, attr *syscall.SysProcAttr) *child {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), childVariable+"=1", "GORACE=atexit_sleep_ms=0")
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = attr
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
	c := &child{pid: cmd.Process.Pid, cmd: cmd, t: t, in: in, lines: bufio.NewScanner(out)}
	t.Cleanup(func() { c.end() })
	c.answer()
	return c
}

// burn returns when the child has used d of CPU time.
func (c *child) burn(d time.Duration) {
	c.t.Helper()
	if _, err := fmt.Fprintln(c.in, d); err != nil {
		c.t.Fatal(err)
	}
	c.answer()
}

func (c *child) answer() {
	c.t.Helper()
	if !c.lines.Scan() {
		c.t.Fatal("the child ended")
	}
}

// end ends the child and waits for it, once; it returns the pid that it had.
func (c *child) end() int {
	c.t.Helper()
	if c.cmd != nil {
		c.in.Close()
		if err := c.cmd.Wait(); err != nil {
			c.t.Errorf("child: %v", err)
		}
		c.cmd = nil
	}
	return c.pid
}
