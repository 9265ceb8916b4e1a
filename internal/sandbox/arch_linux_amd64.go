package sandbox

import "golang.org/x/sys/unix"

const (
	elfMachine = 62 // this architecture's number in ELF files
	stubCode   = codeAMD64
)

const arch = unix.AUDIT_ARCH_X86_64

// otherABI is the bit in the numbers of calls of x32, which would pass by rules for the plain numbers.
const otherABI = 0x40000000

// oldRules are for calls that only this architecture has, most of them older forms of others.
func oldRules() []rule {
	refuse := func(nr uint32, name string, when ...condition) rule {
		return rule{nr: nr, name: name, verdict: refused, when: when}
	}
	return []rule{
		refuse(unix.SYS_IOPL, "iopl"),
		refuse(unix.SYS_IOPERM, "ioperm"),
		refuse(unix.SYS_MODIFY_LDT, "modify_ldt"),
		refuse(unix.SYS_USELIB, "uselib"),
		refuse(unix.SYS_USTAT, "ustat"),
		refuse(unix.SYS__SYSCTL, "_sysctl"),
		{nr: unix.SYS_CREATE_MODULE, name: "create_module", verdict: refused, hostile: true},
		refuse(unix.SYS_CHMOD, "chmod", anyOf(1, setID)),
		refuse(unix.SYS_CREAT, "creat", anyOf(1, setID)),
		refuse(unix.SYS_MKNOD, "mknod", anyOf(1, setID)),
		refuse(unix.SYS_OPEN, "open", anyOf(1, unix.O_CREAT|unix.O_TMPFILE&^unix.O_DIRECTORY), anyOf(2, setID)),
	}
}

// oldFileCalls are calls for files that only this architecture has.
func oldFileCalls() []fileCall {
	return []fileCall{
		{unix.SYS_OPEN, "open", opens, []pathArg{{-1, 0}}, 1},
		{unix.SYS_CREAT, "creat", opensNew, []pathArg{{-1, 0}}, 0},
		{unix.SYS_MKDIR, "mkdir", creates, []pathArg{{-1, 0}}, 0},
		{unix.SYS_MKNOD, "mknod", creates, []pathArg{{-1, 0}}, 0},
		{unix.SYS_SYMLINK, "symlink", creates, []pathArg{{-1, 1}}, 0},
		{unix.SYS_UNLINK, "unlink", removes, []pathArg{{-1, 0}}, 0},
		{unix.SYS_RMDIR, "rmdir", removes, []pathArg{{-1, 0}}, 0},
		{unix.SYS_RENAME, "rename", moves, []pathArg{{-1, 0}, {-1, 1}}, 0},
		{unix.SYS_RENAMEAT, "renameat", moves, []pathArg{{0, 1}, {2, 3}}, 0},
		{unix.SYS_LINK, "link", moves, []pathArg{{-1, 0}, {-1, 1}}, 0},
	}
}
