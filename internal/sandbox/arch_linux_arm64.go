package sandbox

import "golang.org/x/sys/unix"

const (
	elfMachine = 183 // this architecture's number in ELF files
	stubCode   = codeARM64
)

const arch = unix.AUDIT_ARCH_AARCH64

// otherABI is none: this architecture's 32 bit calls have an architecture of their own.
const otherABI = 0

// oldRules are none: the architecture is younger than the older forms of calls.
func oldRules() []rule { return nil }

// oldFileCalls are calls for files that later architectures lack.
func oldFileCalls() []fileCall {
	return []fileCall{{unix.SYS_RENAMEAT, "renameat", moves, []pathArg{{0, 1}, {2, 3}}, 0}}
}
