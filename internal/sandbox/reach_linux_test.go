//go:build amd64 || arm64

package sandbox

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// networkEnv says that the test binary is in a network of its own.
const networkEnv = "SANDBOX_TEST_NETWORK"

// TestReach: another host reaches what a run serves only if the run has the full network. Here the other host is a second
// network, joined to the first by a wire.
func TestReach(t *testing.T) {
	if os.Getenv(networkEnv) == "" {
		inNetwork(t)
		return
	}
	command(t, "ip", "link", "set", "lo", "up")
	command(t, "ip", "link", "add", "ours", "type", "veth", "peer", "name", "theirs")
	command(t, "ip", "addr", "add", "10.9.0.1/24", "dev", "ours")
	command(t, "ip", "link", "set", "ours", "up")
	other := startRunWith(t, &Policy{Level: None}, nil, func(cmd *exec.Cmd) { cmd.SysProcAttr.Cloneflags = unix.CLONE_NEWNET })
	command(t, "ip", "link", "set", "theirs", "netns", number(uint64(other.cmd.Process.Pid)))
	other.can("run", "ip", "addr", "add", "10.9.0.2/24", "dev", "theirs")
	other.can("run", "ip", "link", "set", "theirs", "up")
	for _, full := range []bool{false, true} {
		p, _ := typical(t)
		p.FullNetwork = full
		r := startRun(t, p)
		_, port, _ := strings.Cut(r.can("listen", "all", "tcp4", "0.0.0.0:0"), ":")
		if full {
			other.can("dial", "10.9.0.1:"+port)
		} else {
			other.cannot(syscall.ECONNREFUSED, "dial", "10.9.0.1:"+port)
		}
	}
}

// inNetwork runs the test once more where it may make networks.
func inNetwork(t *testing.T) {
	_, err := exec.LookPath("ip")
	if err == nil {
		err = tryNamespaces(t.Context())
	}
	if err != nil {
		lacks(t, err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), networkEnv+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func command(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
}
