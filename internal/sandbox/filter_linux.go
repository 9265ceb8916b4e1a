//go:build amd64 || arm64

package sandbox

import (
	"fmt"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Offsets in struct seccomp_data; see seccomp(2). Both architectures are little endian.
const (
	dataNumber = 0
	dataArch   = 4
	dataArgs   = 16
)

// maxFilter is BPF_MAXINSNS.
const maxFilter = 4096

// filter returns the seccomp filter of the rules. Where nobody listens, notified is false: refused calls fail by
// themselves and decided ones are allowed.
func filter(rules []rule, notified bool) ([]bpf.RawInstruction, error) {
	load := func(offset uint32) bpf.Instruction { return bpf.LoadAbsolute{Off: offset, Size: 4} }
	program := []bpf.Instruction{
		load(dataArch),
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: arch, SkipTrue: 1},
		bpf.RetConstant{Val: unix.SECCOMP_RET_KILL_PROCESS},
		load(dataNumber),
	}
	if otherABI != 0 {
		program = append(program, bpf.JumpIf{Cond: bpf.JumpBitsNotSet, Val: otherABI, SkipTrue: 1}, bpf.RetConstant{Val: fails(unix.ENOSYS)})
	}
	for _, r := range rules {
		if r.verdict == decided && !notified {
			continue
		}
		var body []bpf.Instruction
		for _, c := range r.when {
			body = append(body, load(c.offset()))
			if c.mask != all {
				body = append(body, bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: c.mask})
			}
			body = append(body, bpf.JumpIf{}) // set below, when it is known how far
		}
		body = append(body, bpf.RetConstant{Val: r.action(notified)})
		// Who fails a condition goes on behind the rule, where the number is loaded again.
		next := 0
		for i, in := range body {
			if _, jump := in.(bpf.JumpIf); !jump {
				continue
			}
			c := r.when[next]
			next++
			body[i] = bpf.JumpIf{Cond: bpf.JumpEqual, Val: c.value, SkipFalse: uint8(len(body) - i - 1)}
			if c.not {
				body[i] = bpf.JumpIf{Cond: bpf.JumpEqual, Val: c.value, SkipTrue: uint8(len(body) - i - 1)}
			}
		}
		if len(r.when) > 0 {
			body = append(body, load(dataNumber))
		}
		program = append(program, bpf.JumpIf{Cond: bpf.JumpEqual, Val: r.nr, SkipFalse: uint8(len(body))})
		program = append(program, body...)
	}
	program = append(program, bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW})
	if len(program) > maxFilter {
		return nil, fmt.Errorf("make the seccomp filter: %d instructions, at most %d are allowed", len(program), maxFilter)
	}
	raw, err := bpf.Assemble(program)
	if err != nil {
		return nil, fmt.Errorf("make the seccomp filter: %w", err)
	}
	return raw, nil
}

func (c condition) offset() uint32 {
	at := dataArgs + 8*uint32(c.arg)
	if c.high {
		at += 4
	}
	return at
}

// action is what the filter returns when the rule holds.
func (r rule) action(notified bool) uint32 {
	switch {
	case r.verdict == absent:
		return fails(r.errno)
	case notified:
		return unix.SECCOMP_RET_USER_NOTIF
	default:
		return fails(unix.EPERM)
	}
}

func fails(errno unix.Errno) uint32 { return unix.SECCOMP_RET_ERRNO | uint32(errno) }

// holds says whether a call with these arguments meets the rule, as the filter does.
func (r rule) holds(nr uint32, args [6]uint64) bool {
	if nr != r.nr {
		return false
	}
	for _, c := range r.when {
		half := uint32(args[c.arg])
		if c.high {
			half = uint32(args[c.arg] >> 32)
		}
		if (half&c.mask == c.value) == c.not {
			return false
		}
	}
	return true
}
