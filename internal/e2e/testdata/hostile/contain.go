package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// contain becomes another program on a host that lacks something, as the seccomp profile of a container makes it: "namespaces",
// "landlock", or both with a comma between.
func contain(without string, command []string) error {
	const newNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET
	number, argument := bpf.LoadAbsolute{Off: 0, Size: 4}, bpf.LoadAbsolute{Off: 16, Size: 4}
	fails := func(errno unix.Errno) bpf.Instruction {
		return bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(errno)}
	}
	program := []bpf.Instruction{number}
	for what := range strings.SplitSeq(without, ",") {
		switch what {
		case "namespaces":
			for _, nr := range []uint32{unix.SYS_CLONE, unix.SYS_UNSHARE} {
				program = append(program, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: nr, SkipTrue: 4}, argument,
					bpf.JumpIf{Cond: bpf.JumpBitsNotSet, Val: newNamespaces, SkipTrue: 1}, fails(unix.EPERM), number)
			}
			program = append(program, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.SYS_CLONE3, SkipTrue: 1}, fails(unix.ENOSYS))
		case "landlock":
			program = append(program, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.SYS_LANDLOCK_CREATE_RULESET, SkipTrue: 1}, fails(unix.ENOSYS))
		default:
			return fmt.Errorf("contain without %q: want namespaces, landlock", what)
		}
	}
	raw, err := bpf.Assemble(append(program, bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW}))
	if err != nil {
		return err
	}
	filter := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		filter[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	path, err := exec.LookPath(command[0])
	if err != nil {
		return err
	}
	return apart(func() error {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return err
		}
		list := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
		if _, err := call(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&list))); err != nil {
			return fmt.Errorf("install the filter: %w", err)
		}
		return unix.Exec(path, command, os.Environ())
	})
}
