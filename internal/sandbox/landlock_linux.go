//go:build amd64 || arm64

package sandbox

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Rights of Landlock. See the kernel's Documentation/userspace-api/landlock.rst.
const (
	readRights = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR

	// Device files are not among them: a run has no capability to make some.
	writeRights = readRights | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_REFER |
		unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE | unix.LANDLOCK_ACCESS_FS_MAKE_DIR |
		unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_MAKE_SYM | unix.LANDLOCK_ACCESS_FS_MAKE_FIFO | unix.LANDLOCK_ACCESS_FS_MAKE_SOCK

	// deviceRights are for a device that is named itself.
	deviceRights = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV

	// fileRights are those that a file may have; the kernel refuses the others for it.
	fileRights = unix.LANDLOCK_ACCESS_FS_EXECUTE | deviceRights
)

// devices are what every program expects in /dev. With /dev/ptmx and /dev/pts a run can make terminals, and can open
// the others of its user.
func devices() []string {
	return []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx", "/dev/pts"}
}

// landlockABI returns which version of Landlock the kernel has.
func landlockABI() (int, error) {
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0, errno
	}
	return int(abi), nil
}

// handled are the accesses that a ruleset takes away at this version.
func handled(abi int, network bool) unix.LandlockRulesetAttr {
	attr := unix.LandlockRulesetAttr{Handled_access_fs: unix.LANDLOCK_ACCESS_FS_MAKE_SYM<<1 - 1}
	if abi >= 2 {
		attr.Handled_access_fs |= unix.LANDLOCK_ACCESS_FS_REFER
	}
	if abi >= 3 {
		attr.Handled_access_fs |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	if abi >= 4 && !network {
		attr.Handled_access_net = unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
	}
	if abi >= 5 {
		attr.Handled_access_fs |= unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	}
	if abi >= 6 {
		attr.Scoped = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
	}
	return attr
}

// ruleset makes what landlock_restrict_self(2) takes. Unless connections are decided by the notifier, the kernel allows
// those to the policy's ports, at every address.
func (p *Policy) ruleset(abi int, notified bool) (*os.File, error) {
	attr := handled(abi, p.FullNetwork)
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if errno != 0 {
		return nil, fmt.Errorf("make a Landlock ruleset: %w", errno)
	}
	set := os.NewFile(fd, "landlock")
	if err := p.addRules(int(fd), attr, notified); err != nil {
		return nil, errors.Join(err, set.Close())
	}
	return set, nil
}

func (p *Policy) addRules(set int, attr unix.LandlockRulesetAttr, notified bool) error {
	with := *p
	with.Write = append(existing(devices()), p.Write...)
	list, err := with.grants()
	if err != nil {
		return err
	}
	for _, g := range list {
		if err := g.addTo(set, attr.Handled_access_fs); err != nil {
			return err
		}
	}
	if attr.Handled_access_net == 0 || notified {
		return nil
	}
	for _, port := range p.Ports {
		rule := struct{ access, port uint64 }{unix.LANDLOCK_ACCESS_NET_CONNECT_TCP, uint64(port)}
		const netPort = 2 // LANDLOCK_RULE_NET_PORT
		if _, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(set), netPort, uintptr(unsafe.Pointer(&rule)), 0, 0, 0); errno != 0 {
			return fmt.Errorf("allow port %d: %w", port, errno)
		}
	}
	return nil
}

// existing returns those of the paths that there are.
func existing(paths []string) []string {
	return slices.DeleteFunc(paths, func(path string) bool {
		_, err := os.Stat(path)
		return err != nil
	})
}

// addTo adds a rule. The path is opened without following a link, so that nobody can put one there since it was resolved;
// what has vanished since, or is closed to this process, needs no rule.
func (g grant) addTo(set int, handled uint64) error {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS}
	fd, err := unix.Openat2(unix.AT_FDCWD, g.path, &how)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EACCES) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("allow %s: %w", g.path, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("allow %s: %w", g.path, err)
	}
	rule := unix.LandlockPathBeneathAttr{Allowed_access: g.access(st.Mode) & handled, Parent_fd: int32(fd)}
	if rule.Allowed_access == 0 {
		return nil
	}
	if _, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(set), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&rule)), 0, 0, 0); errno != 0 {
		return fmt.Errorf("allow %s: %w", g.path, errno)
	}
	return nil
}

// access is what Landlock calls the grant's rights for a file of this mode.
func (g grant) access(mode uint32) uint64 {
	format := mode & unix.S_IFMT
	switch {
	case g.names:
		return unix.LANDLOCK_ACCESS_FS_READ_DIR
	case g.rights == writable && (format == unix.S_IFCHR || format == unix.S_IFBLK):
		return deviceRights
	case g.rights == writable && g.path == "/dev/pts":
		return deviceRights | unix.LANDLOCK_ACCESS_FS_READ_DIR
	case g.rights == writable && format == unix.S_IFDIR:
		return writeRights
	case g.rights == writable:
		return writeRights & fileRights
	case format == unix.S_IFDIR:
		return readRights
	default:
		return readRights & fileRights
	}
}
