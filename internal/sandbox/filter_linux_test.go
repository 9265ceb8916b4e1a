//go:build amd64 || arm64

package sandbox

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// machine runs a filter as the kernel does.
func machine(t *testing.T, p Policy, notified bool) *bpf.VM {
	t.Helper()
	program, err := filter(p.rules(), notified)
	if err != nil {
		t.Fatal(err)
	}
	instructions, ok := bpf.Disassemble(program)
	if !ok {
		t.Fatal("the filter has instructions that bpf does not know")
	}
	vm, err := bpf.NewVM(instructions)
	if err != nil {
		t.Fatal(err)
	}
	return vm
}

// decide returns what the filter does. The machine reads big endian words, the kernel those of the host.
func decide(t *testing.T, vm *bpf.VM, arch, nr uint32, args [6]uint64) uint32 {
	t.Helper()
	data := make([]byte, 64)
	binary.BigEndian.PutUint32(data[dataNumber:], nr)
	binary.BigEndian.PutUint32(data[dataArch:], arch)
	for i, a := range args {
		binary.BigEndian.PutUint32(data[dataArgs+8*i:], uint32(a))
		binary.BigEndian.PutUint32(data[dataArgs+8*i+4:], uint32(a>>32))
	}
	got, err := vm.Run(data)
	if err != nil {
		t.Fatal(err)
	}
	return uint32(got)
}

// TestFilter: the filter returns for every number what the first rule that holds says, with arguments on both sides of
// each condition.
func TestFilter(t *testing.T) {
	for _, policy := range []Policy{{}, {FullNetwork: true}} {
		for _, notified := range []bool{true, false} {
			t.Run(fmt.Sprintf("full=%v,notified=%v", policy.FullNetwork, notified), func(t *testing.T) {
				rules := policy.rules()
				vm := machine(t, policy, notified)
				samples := [][6]uint64{{}, {^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0)}}
				for _, r := range rules {
					var meets [6]uint64
					for _, c := range r.when {
						v := uint64(c.value)
						if c.not {
							v = uint64(^c.value & c.mask)
						}
						if c.high {
							v <<= 32
						}
						meets[c.arg] |= v
					}
					samples = append(samples, meets)
					for _, c := range r.when {
						misses := meets
						misses[c.arg] ^= 1 << 2
						samples = append(samples, misses)
						misses[c.arg] = 0
						samples = append(samples, misses)
					}
				}
				hit := make([]bool, len(rules))
				for _, nr := range nearby(rules) {
					for _, args := range samples {
						want := uint32(unix.SECCOMP_RET_ALLOW)
						for i, r := range rules {
							if r.holds(nr, args) && r.stands(notified) {
								want, hit[i] = r.action(notified), true
								break
							}
						}
						if got := decide(t, vm, arch, nr, args); got != want {
							t.Fatalf("call %d of %x: %#x, want %#x", nr, args, got, want)
						}
					}
				}
				for i, h := range hit {
					if !h && rules[i].stands(notified) {
						t.Errorf("rule %d for %s is never reached", i, rules[i].name)
					}
				}
			})
		}
	}
}

// nearby are the numbers of rules and those beside them.
func nearby(rules []rule) (list []uint32) {
	for _, r := range rules {
		list = append(list, r.nr, r.nr+1, max(r.nr, 1)-1)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// TestForeignCalls: calls of another architecture end the process, those of another binary interface are not there.
func TestForeignCalls(t *testing.T) {
	vm := machine(t, Policy{}, true)
	for _, foreign := range []uint32{unix.AUDIT_ARCH_I386, unix.AUDIT_ARCH_ARM, 0} {
		if got := decide(t, vm, foreign, unix.SYS_GETPID, [6]uint64{}); got != unix.SECCOMP_RET_KILL_PROCESS {
			t.Errorf("a call of architecture %#x: %#x", foreign, got)
		}
	}
	if otherABI != 0 {
		if got := decide(t, vm, arch, otherABI|unix.SYS_GETPID, [6]uint64{}); got != fails(unix.ENOSYS) {
			t.Errorf("a call of x32: %#x", got)
		}
	}
}
