//go:build amd64 || arm64

package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

func probe(ctx context.Context) Host {
	h := probeStandard(ctx)
	h.Namespaces = tryNamespaces(ctx)
	h.Bwrap, h.Version, h.Bubblewrap = tryBubblewrap(ctx, h.Namespaces)
	return h
}

// probeStandard looks at what level Standard needs.
func probeStandard(ctx context.Context) Host {
	h := Host{System: runtime.GOOS + "/" + runtime.GOARCH}
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		h.Kernel = unix.ByteSliceToString(name.Release[:])
	}
	abi, err := landlockABI()
	h.ABI, h.Landlock = abi, landlockProblem(err)
	h.SignalsScoped = abi >= 6
	h.Audit = auditProblem()
	h.Notify = notifyProblem(tryNotifications())
	if h.Standard = h.Landlock; h.Standard == nil {
		h.Standard = tryStandard(ctx, h.Notify != nil)
	}
	if errors.Is(h.Standard, unix.EBUSY) {
		h.Notify = &Problem{What: "somebody else is asked about calls already, as in a container of LXD", Mend: "run outside of it"}
		h.Standard = tryStandard(ctx, true)
	}
	return h
}

func notifyProblem(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EPERM):
		return &Problem{What: "asking about calls and handing out a run's sockets are refused, as by the seccomp profile of a container", Mend: "allow seccomp and pidfd_getfd in the profile"}
	}
	return &Problem{What: "the kernel cannot ask about calls and hand out a run's sockets", Mend: "update it to Linux 5.9 or newer"}
}

func landlockProblem(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EOPNOTSUPP):
		return &Problem{What: "Landlock is not switched on in this kernel", Mend: "add landlock to the list of its lsm= parameter at the start"}
	case errors.Is(err, unix.ENOSYS):
		return &Problem{What: "the kernel has no Landlock", Mend: "update it to Linux 5.13 or newer, built with CONFIG_SECURITY_LANDLOCK"}
	case errors.Is(err, unix.EPERM):
		return &Problem{What: "Landlock is refused, as by the seccomp profile of a container", Mend: "allow landlock_create_ruleset, landlock_add_rule and landlock_restrict_self in the profile"}
	}
	return &Problem{What: "Landlock: " + err.Error()}
}

// tryStandard starts a program at level Standard.
func tryStandard(ctx context.Context, noNotifier bool) error {
	path, err := harmless()
	if err != nil {
		return err
	}
	p := &Policy{Level: Standard, Read: SystemFiles(), NoNotifier: noNotifier}
	s, err := p.Prepare(path, nil)
	if err != nil {
		return fmt.Errorf("a program cannot be started: %w", err)
	}
	defer s.Close()
	cmd := exec.CommandContext(ctx, s.Path)
	cmd.Args[0], cmd.ExtraFiles, cmd.Env, cmd.Dir = path, s.Extra, []string{}, "/"
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("a program cannot be started: %w", err)
	}
	if err := s.Started(ctx); err != nil {
		return errors.Join(fmt.Errorf("a program cannot be started: %w", err), ignoreExit(cmd.Wait()))
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("%s has failed: %w", path, err)
	}
	return nil
}

// ignoreExit leaves out that a program has failed.
func ignoreExit(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return nil
	}
	return err
}

// harmless finds a program that does nothing.
func harmless() (string, error) {
	for _, path := range []string{"/bin/true", "/usr/bin/true", "/run/current-system/sw/bin/true"} {
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	path, err := exec.LookPath("true")
	if err != nil {
		return "", &Problem{What: "there is no program to try it with", Mend: "install true, of coreutils"}
	}
	return path, nil
}

// tryNamespaces starts a process in a user namespace of its own and in the others that level Strict uses.
func tryNamespaces(ctx context.Context) error {
	path, err := harmless()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, path)
	cmd.Env, cmd.Dir = []string{}, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}},
	}
	err = cmd.Run()
	if err == nil {
		return nil
	}
	problem := &Problem{What: "no user namespace can be made: " + err.Error()}
	switch {
	case setting("user/max_user_namespaces") == "0":
		problem.mendBy("sysctl", "-w", "user.max_user_namespaces=15000")
	case setting("kernel/unprivileged_userns_clone") == "0" && os.Getuid() != 0:
		problem.mendBy("sysctl", "-w", "kernel.unprivileged_userns_clone=1")
	case setting("kernel/apparmor_restrict_unprivileged_userns") == "1" && os.Getuid() != 0:
		problem.mendBy("sysctl", "-w", "kernel.apparmor_restrict_unprivileged_userns=0")
		problem.Mend = "allow it to bwrap by an AppArmor profile, or for all programs: " + problem.Mend
	case errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EINVAL):
		problem.Mend = "use a kernel with CONFIG_USER_NS"
	default:
		problem.Mend = "allow clone and unshare with namespaces in the container's seccomp profile, or run outside of the container"
	}
	return problem
}

// setting returns a value of sysctl(8), or "" where there is none.
func setting(name string) string {
	text, err := os.ReadFile("/proc/sys/" + name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// tryBubblewrap looks for bubblewrap and starts a program with it.
func tryBubblewrap(ctx context.Context, namespaces error) (path, version string, err error) {
	path, version, err = findBubblewrap(ctx)
	if err != nil {
		return path, version, err
	}
	program, err := harmless()
	if err != nil {
		return path, version, err
	}
	cmd := exec.CommandContext(ctx, path, "--unshare-user", "--unshare-all", "--die-with-parent", "--as-pid-1", "--cap-drop", "ALL", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", program)
	var stderr bytes.Buffer
	cmd.Env, cmd.Dir, cmd.Stderr = []string{}, "/", &stderr
	if err := cmd.Run(); err != nil {
		problem := &Problem{What: fmt.Sprintf("%s: %s", path, strings.TrimSpace(stderr.String()))}
		if stderr.Len() == 0 {
			problem.What = fmt.Sprintf("%s: %v", path, err)
		}
		var why *Problem
		if errors.As(namespaces, &why) {
			problem.Mend, problem.Command = why.Mend, why.Command
		}
		return path, version, problem
	}
	return path, version, nil
}

// installs says that a package mends the problem, by the command of this host's packages.
func (p *Problem) installs(name string) *Problem {
	for _, known := range [][]string{{"apt-get", "install"}, {"dnf", "install"}, {"pacman", "-S"}, {"apk", "add"}, {"zypper", "install"}} {
		if _, err := exec.LookPath(known[0]); err == nil {
			return p.mendBy(append(known, name)...)
		}
	}
	p.Mend = "install it from https://github.com/containers/" + name
	return p
}

// mendBy says that a command of root's mends the problem.
func (p *Problem) mendBy(command ...string) *Problem {
	p.Mend, p.Command = "sudo "+strings.Join(command, " "), command
	return p
}
