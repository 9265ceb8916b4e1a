//go:build amd64 || arm64

package sandbox

import (
	"fmt"
	"maps"
	"math"
	"slices"

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
// themselves, decided ones are allowed, and there are the rules for that.
func filter(rules []rule, notified bool) ([]bpf.RawInstruction, error) {
	return assemble(rules, notified, unix.SECCOMP_RET_KILL_PROCESS, fails(unix.ENOSYS))
}

// watching returns the filter that asks about the rules' calls and refuses none, those of other architectures neither.
func watching(rules []rule) ([]bpf.RawInstruction, error) {
	return assemble(rules, true, unix.SECCOMP_RET_ALLOW, unix.SECCOMP_RET_ALLOW)
}

// assemble makes a filter. otherArch and otherNumbers are what it returns for calls of other architectures and ABIs.
func assemble(rules []rule, notified bool, otherArch, otherNumbers uint32) ([]bpf.RawInstruction, error) {
	load := func(offset uint32) bpf.Instruction { return bpf.LoadAbsolute{Off: offset, Size: 4} }
	program := []bpf.Instruction{
		load(dataArch),
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: arch, SkipTrue: 1},
		bpf.RetConstant{Val: otherArch},
		load(dataNumber),
	}
	if otherABI != 0 {
		program = append(program, bpf.JumpIf{Cond: bpf.JumpBitsNotSet, Val: otherABI, SkipTrue: 1}, bpf.RetConstant{Val: otherNumbers})
	}
	groups := make(map[uint32][]rule)
	for _, r := range rules {
		if r.stands(notified) {
			groups[r.nr] = append(groups[r.nr], r)
		}
	}
	tree, err := search(slices.Sorted(maps.Keys(groups)), func(nr uint32) []bpf.Instruction { return group(groups[nr], notified) })
	if err != nil {
		return nil, err
	}
	program = append(program, tree...)
	if len(program) > maxFilter {
		return nil, fmt.Errorf("make the seccomp filter: %d instructions, at most %d are allowed", len(program), maxFilter)
	}
	raw, err := bpf.Assemble(program)
	if err != nil {
		return nil, fmt.Errorf("make the seccomp filter: %w", err)
	}
	return raw, nil
}

// search finds the number that is loaded among sorted ones, and does what there is for it. It is a binary search: at a
// filter's start the kernel walks through it for each call that it has.
func search(numbers []uint32, do func(nr uint32) []bpf.Instruction) ([]bpf.Instruction, error) {
	if len(numbers) > 3 {
		half := len(numbers) / 2
		less, err := search(numbers[:half], do)
		if err != nil {
			return nil, err
		}
		more, err := search(numbers[half:], do)
		if err != nil {
			return nil, err
		}
		program := []bpf.Instruction{bpf.JumpIf{Cond: bpf.JumpLessThan, Val: numbers[half], SkipTrue: 1}, bpf.Jump{Skip: uint32(len(less))}}
		return slices.Concat(program, less, more), nil
	}
	var program []bpf.Instruction
	for _, nr := range numbers {
		body := do(nr)
		if len(body) > math.MaxUint8 {
			return nil, fmt.Errorf("make the seccomp filter: the rules for call %d are too long", nr)
		}
		program = append(program, bpf.JumpIf{Cond: bpf.JumpEqual, Val: nr, SkipFalse: uint8(len(body))})
		program = append(program, body...)
	}
	return append(program, bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW}), nil
}

// group returns what the rules of one number come to, ended by a return.
func group(rules []rule, notified bool) []bpf.Instruction {
	var program []bpf.Instruction
	for _, r := range rules {
		// Who fails a condition goes on behind the rule.
		body := []bpf.Instruction{bpf.RetConstant{Val: r.action(notified)}}
		for _, c := range slices.Backward(r.when) {
			jump := bpf.JumpIf{Cond: bpf.JumpEqual, Val: c.value, SkipFalse: uint8(len(body))}
			if c.not {
				jump = bpf.JumpIf{Cond: bpf.JumpEqual, Val: c.value, SkipTrue: uint8(len(body))}
			}
			look := []bpf.Instruction{bpf.LoadAbsolute{Off: c.offset(), Size: 4}}
			if c.mask != all {
				look = append(look, bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: c.mask})
			}
			body = slices.Concat(append(look, jump), body)
		}
		program = append(program, body...)
		if len(r.when) == 0 {
			return program
		}
	}
	return append(program, bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW})
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
	case r.verdict == allowed:
		return unix.SECCOMP_RET_ALLOW
	case notified:
		return unix.SECCOMP_RET_USER_NOTIF
	default:
		return fails(unix.EPERM)
	}
}

func fails(errno unix.Errno) uint32 { return unix.SECCOMP_RET_ERRNO | uint32(errno) }

// stands says whether the rule is in a filter.
func (r rule) stands(notified bool) bool {
	if notified {
		return !r.unasked
	}
	return r.verdict != decided
}

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
