package proc

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// Seclude keeps other processes of the same user from reading this one's memory, environment and open files, and from
// tracing it (prctl(2), PR_SET_DUMPABLE). The files in /proc of this process then belong to root, so AddOOMScore comes
// before it. A new program (execve(2)) begins without it. It does not keep out a process with CAP_SYS_PTRACE: see
// Config.Confine.
func Seclude() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("keep other processes from looking into this one: %w", err)
	}
	return nil
}

// reaching are the capabilities by which a process reaches others, or the kernel itself (capabilities(7)).
var reaching = []int{
	unix.CAP_SYS_PTRACE, unix.CAP_SYS_ADMIN, unix.CAP_KILL, unix.CAP_DAC_READ_SEARCH,
	unix.CAP_SYS_MODULE, unix.CAP_SYS_RAWIO, unix.CAP_PERFMON, unix.CAP_BPF, unix.CAP_CHECKPOINT_RESTORE,
}

// Reaching are the capabilities that Config.Confine takes.
func Reaching() []int { return slices.Clone(reaching) }

// confine takes them from the calling thread for good, and so from every program that it starts: root's programs get
// what the bounding set allows. Other threads keep theirs. An error says that root's programs may get them all the same.
func confine() error {
	var errs []error
	for _, c := range reaching {
		if has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, uintptr(c), 0, 0, 0); err != nil || has == 0 {
			continue // EINVAL: the kernel does not know it
		}
		// Only root's programs, and those with a set-user-ID bit, get anything from the bounding set.
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0); err != nil && os.Geteuid() == 0 {
			errs = append(errs, fmt.Errorf("drop capability %d from the bounding set: %w", c, err))
		}
		_ = unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_LOWER, uintptr(c), 0, 0) // before Linux 4.3 there is none
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return errors.Join(append(errs, fmt.Errorf("read the capabilities: %w", err))...)
	}
	for _, c := range reaching {
		set, bit := &sets[c/32], uint32(1)<<(c%32)
		set.Effective, set.Permitted, set.Inheritable = set.Effective&^bit, set.Permitted&^bit, set.Inheritable&^bit
	}
	if err := unix.Capset(&header, &sets[0]); err != nil {
		errs = append(errs, fmt.Errorf("drop capabilities: %w", err))
	}
	return errors.Join(errs...)
}
