// The init of a strict sandbox, process 1 in it: see init_linux.go. It is copied into a file of its own, so nothing here
// may refer to another symbol. Step by step it is as on amd64.
//
// R19 argv, R20 envp, R21 the report's descriptor, R22 the program's pid, 0(RSP) the mask of signals before, 8(RSP) scratch.

#include "textflag.h"

// func initImage() (code *byte, size int)
TEXT ·initImage(SB), NOSPLIT, $0-16
	MOVD $·initCode(SB), R0
	MOVD R0, code+0(FP)
	MOVD $1024, R0
	MOVD R0, size+8(FP)
	RET

TEXT ·initCode(SB), NOSPLIT|NOFRAME, $0-0
	MOVD 0(RSP), R0
	MOVD RSP, R19
	ADD  $8, R19
	LSL  $3, R0, R0
	ADD  R0, R19, R20
	ADD  $8, R20
	SUB  $128, RSP

	// R21 = the number in argv[1]
	MOVD 8(R19), R1
	MOVD $0, R21
	MOVD $10, R2
digit:
	MOVBU (R1), R0
	CBZ  R0, secluded
	SUB  $48, R0
	MUL  R2, R21, R21
	ADD  R0, R21, R21
	ADD  $1, R1
	B    digit

secluded:
	// prctl(PR_SET_DUMPABLE, 0)
	MOVD $4, R0
	MOVD $0, R1
	MOVD $167, R8
	SVC
	// prctl(PR_SET_NAME, "sandbox-init")
	MOVD $0x2d786f62646e6173, R0
	MOVD R0, 8(RSP)
	MOVD $0x74696e69, R0
	MOVD R0, 16(RSP)
	MOVD $15, R0
	ADD  $8, RSP, R1
	MOVD $167, R8
	SVC
	// rt_sigprocmask(SIG_BLOCK, {SIGALRM, SIGCHLD}, before, 8)
	MOVD $0x12000, R0
	MOVD R0, 8(RSP)
	MOVD $0, R0
	ADD  $8, RSP, R1
	MOVD RSP, R2
	MOVD $8, R3
	MOVD $135, R8
	SVC
	// write(report, {5, 0}, 8)
	MOVD $5, R0
	MOVD R0, 8(RSP)
	MOVD R21, R0
	ADD  $8, RSP, R1
	MOVD $8, R2
	MOVD $64, R8
	SVC
	CMP  $0, R0
	BLT  exit // whoever made this sandbox is gone, and its end was not seen
	// clone(SIGCHLD, 0, 0, 0, 0)
	MOVD $17, R0
	MOVD $0, R1
	MOVD $0, R2
	MOVD $0, R3
	MOVD $0, R4
	MOVD $220, R8
	SVC
	CBZ  R0, child
	CMP  $0, R0
	BLT  exit
	MOVD R0, R22

	// Close all but the report.
	MOVD $0, R23
closing:
	CMP  R21, R23
	BEQ  next
	MOVD R23, R0
	MOVD $57, R8
	SVC
next:
	ADD  $1, R23
	CMP  $128, R23
	BLT  closing
	// close_range(128, ~0, 0): what nobody should have left open; before Linux 5.9 it stays
	MOVD $128, R0
	MOVD $0xffffffff, R1
	MOVD $0, R2
	MOVD $436, R8
	SVC

	// wait4(-1, status, 0, 0) until it is the program
wait:
	MOVD $-1, R0
	ADD  $12, RSP, R1
	MOVD $0, R2
	MOVD $0, R3
	MOVD $260, R8
	SVC
	CMP  R22, R0
	BNE  wait

	// wait4(-1, 0, WNOHANG, 0) until there is none that has ended
drain:
	MOVD $-1, R0
	MOVD $0, R1
	MOVD $1, R2
	MOVD $0, R3
	MOVD $260, R8
	SVC
	CMP  $0, R0
	BGT  drain
	MOVD $2, R24
	BLT  tell
	MOVD $3, R24
tell:
	MOVW R24, 8(RSP)
	// write(report, 8 bytes)
	MOVD R21, R0
	ADD  $8, RSP, R1
	MOVD $8, R2
	MOVD $64, R8
	SVC
	CMP  $2, R24
	BEQ  exit
	// read(report, 8 bytes): what is left is looked at meanwhile
	MOVD R21, R0
	ADD  $8, RSP, R1
	MOVD $8, R2
	MOVD $63, R8
	SVC

	// kill(-1, SIGTERM), kill(-1, SIGCONT)
	MOVD $-1, R0
	MOVD $15, R1
	MOVD $129, R8
	SVC
	MOVD $-1, R0
	MOVD $18, R1
	MOVD $129, R8
	SVC
	// setitimer(ITIMER_REAL, {0, 0, 1, 0}, 0)
	MOVD $0, R0
	MOVD R0, 16(RSP)
	MOVD R0, 24(RSP)
	MOVD R0, 40(RSP)
	MOVD $1, R1
	MOVD R1, 32(RSP)
	ADD  $16, RSP, R1
	MOVD $0, R2
	MOVD $103, R8
	SVC
	MOVD $0x12000, R0
	MOVD R0, 8(RSP)
left:
	MOVD $-1, R0
	MOVD $0, R1
	MOVD $1, R2
	MOVD $0, R3
	MOVD $260, R8
	SVC
	CMP  $0, R0
	BGT  left
	BLT  exit
	// rt_sigtimedwait({SIGALRM, SIGCHLD}, 0, 0, 8)
	ADD  $8, RSP, R0
	MOVD $0, R1
	MOVD $0, R2
	MOVD $8, R3
	MOVD $137, R8
	SVC
	CMP  $14, R0
	BNE  left

exit:
	// exit_group(0): the kernel ends what is left in the namespace
	MOVD $0, R0
	MOVD $94, R8
	SVC
	B    exit

child:
	// setsid()
	MOVD $157, R8
	SVC
	// ioctl(0, TIOCSCTTY, 0): a terminal that is nobody else's becomes that of the session
	MOVD $0, R0
	MOVD $0x540e, R1
	MOVD $0, R2
	MOVD $29, R8
	SVC
	// {1, 0}
	MOVD $1, R0
	MOVD R0, 8(RSP)
	MOVD R21, R0
	ADD  $8, RSP, R1
	MOVD $8, R2
	MOVD $64, R8
	SVC
	// rt_sigprocmask(SIG_SETMASK, before, 0, 8)
	MOVD $2, R0
	MOVD RSP, R1
	MOVD $0, R2
	MOVD $8, R3
	MOVD $135, R8
	SVC
	// execve(argv[2], argv + 3, envp)
	MOVD 16(R19), R0
	ADD  $24, R19, R1
	MOVD R20, R2
	MOVD $221, R8
	SVC
	// {4, errno}
	NEG  R0, R0
	MOVW R0, 12(RSP)
	MOVD $4, R0
	MOVW R0, 8(RSP)
	MOVD R21, R0
	ADD  $8, RSP, R1
	MOVD $8, R2
	MOVD $64, R8
	SVC
	MOVD $127, R0
	MOVD $94, R8
	SVC
	B    exit
