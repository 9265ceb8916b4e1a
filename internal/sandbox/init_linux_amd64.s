// The init of a strict sandbox, process 1 in it: see init_linux.go. It is copied into a file of its own, so nothing here
// may refer to another symbol.
//
// R12 argv, R13 envp, R15 the report's descriptor, BX the program's pid, 0(SP) the mask of signals before, 8(SP) scratch.

#include "textflag.h"

// func initImage() (code *byte, size int)
TEXT ·initImage(SB), NOSPLIT, $0-16
	LEAQ ·initCode(SB), AX
	MOVQ AX, code+0(FP)
	MOVQ $1024, size+8(FP)
	RET

TEXT ·initCode(SB), NOSPLIT|NOFRAME, $0-0
	MOVQ 0(SP), AX
	LEAQ 8(SP), R12
	LEAQ 8(R12)(AX*8), R13
	SUBQ $128, SP
	ANDQ $~15, SP

	// R15 = the number in argv[1]
	MOVQ 8(R12), SI
	XORL R15, R15
digit:
	MOVBLZX (SI), AX
	TESTL AX, AX
	JZ   secluded
	SUBL $'0', AX
	LEAQ (R15)(R15*4), R15
	LEAQ (AX)(R15*2), R15
	INCQ SI
	JMP  digit

secluded:
	// prctl(PR_SET_DUMPABLE, 0): nobody inside may look into this process or change it
	MOVL $157, AX
	MOVL $4, DI
	XORL SI, SI
	SYSCALL
	// prctl(PR_SET_NAME, "sandbox-init")
	MOVQ $0x2d786f62646e6173, AX
	MOVQ AX, 8(SP)
	MOVQ $0x74696e69, AX
	MOVQ AX, 16(SP)
	MOVL $157, AX
	MOVL $15, DI
	LEAQ 8(SP), SI
	SYSCALL
	// rt_sigprocmask(SIG_BLOCK, {SIGALRM, SIGCHLD}, before, 8)
	MOVQ $0x12000, AX
	MOVQ AX, 8(SP)
	MOVL $14, AX
	XORL DI, DI
	LEAQ 8(SP), SI
	MOVQ SP, DX
	MOVL $8, R10
	SYSCALL
	// write(report, {5, 0}, 8)
	MOVQ $5, AX
	MOVQ AX, 8(SP)
	MOVL $1, AX
	MOVQ R15, DI
	LEAQ 8(SP), SI
	MOVL $8, DX
	SYSCALL
	TESTQ AX, AX
	JS   exit // whoever made this sandbox is gone, and its end was not seen
	// clone(SIGCHLD, 0, 0, 0, 0)
	MOVL $56, AX
	MOVL $17, DI
	XORL SI, SI
	XORL DX, DX
	XORL R10, R10
	XORL R8, R8
	SYSCALL
	TESTQ AX, AX
	JZ   child
	JS   exit
	MOVQ AX, BX

	// Close all but the report, so that pipes end with the program.
	XORL R14, R14
closing:
	CMPQ R14, R15
	JEQ  next
	MOVL $3, AX
	MOVQ R14, DI
	SYSCALL
next:
	INCQ R14
	CMPQ R14, $128
	JLT  closing
	// close_range(128, ~0, 0): what nobody should have left open; before Linux 5.9 it stays
	MOVL $436, AX
	MOVL $128, DI
	MOVL $-1, SI
	XORL DX, DX
	SYSCALL

	// wait4(-1, status, 0, 0) until it is the program
wait:
	MOVL $61, AX
	MOVQ $-1, DI
	LEAQ 12(SP), SI
	XORL DX, DX
	XORL R10, R10
	SYSCALL
	CMPQ AX, BX
	JNE  wait

	// wait4(-1, 0, WNOHANG, 0) until there is none that has ended
drain:
	MOVL $61, AX
	MOVQ $-1, DI
	XORL SI, SI
	MOVL $1, DX
	XORL R10, R10
	SYSCALL
	TESTQ AX, AX
	JG   drain
	// {2 if none is left, 3 if some are; status}
	MOVL $2, DX
	JS   tell
	MOVL $3, DX
tell:
	MOVL DX, 8(SP)
	// write(report, 8 bytes)
	MOVL $1, AX
	MOVQ R15, DI
	LEAQ 8(SP), SI
	MOVL $8, DX
	SYSCALL
	CMPL 8(SP), $2
	JEQ  exit
	// read(report, 8 bytes): what is left is looked at meanwhile
	XORL AX, AX
	MOVQ R15, DI
	LEAQ 8(SP), SI
	MOVL $8, DX
	SYSCALL

	// Ask what is left to end, and wait a second for it. kill(-1, SIGTERM), kill(-1, SIGCONT)
	MOVL $62, AX
	MOVQ $-1, DI
	MOVL $15, SI
	SYSCALL
	MOVL $62, AX
	MOVQ $-1, DI
	MOVL $18, SI
	SYSCALL
	// setitimer(ITIMER_REAL, {0, 0, 1, 0}, 0)
	XORL AX, AX
	MOVQ AX, 16(SP)
	MOVQ AX, 24(SP)
	MOVQ AX, 40(SP)
	MOVQ $1, AX
	MOVQ AX, 32(SP)
	MOVL $38, AX
	XORL DI, DI
	LEAQ 16(SP), SI
	XORL DX, DX
	SYSCALL
	MOVQ $0x12000, AX
	MOVQ AX, 8(SP)
left:
	MOVL $61, AX
	MOVQ $-1, DI
	XORL SI, SI
	MOVL $1, DX
	XORL R10, R10
	SYSCALL
	TESTQ AX, AX
	JG   left
	JS   exit
	// rt_sigtimedwait({SIGALRM, SIGCHLD}, 0, 0, 8)
	MOVL $128, AX
	LEAQ 8(SP), DI
	XORL SI, SI
	XORL DX, DX
	MOVL $8, R10
	SYSCALL
	CMPQ AX, $14
	JNE  left

exit:
	// exit_group(0): the kernel ends what is left in the namespace
	MOVL $231, AX
	XORL DI, DI
	SYSCALL
	JMP  exit

child:
	// setsid()
	MOVL $112, AX
	SYSCALL
	// ioctl(0, TIOCSCTTY, 0): a terminal that is nobody else's becomes that of the session
	MOVL $16, AX
	XORL DI, DI
	MOVL $0x540e, SI
	XORL DX, DX
	SYSCALL
	// The program's process tells that it is there: {1, 0}
	MOVQ $1, AX
	MOVQ AX, 8(SP)
	MOVL $1, AX
	MOVQ R15, DI
	LEAQ 8(SP), SI
	MOVL $8, DX
	SYSCALL
	// rt_sigprocmask(SIG_SETMASK, before, 0, 8)
	MOVL $14, AX
	MOVL $2, DI
	MOVQ SP, SI
	XORL DX, DX
	MOVL $8, R10
	SYSCALL
	// execve(argv[2], argv + 3, envp)
	MOVL $59, AX
	MOVQ 16(R12), DI
	LEAQ 24(R12), SI
	MOVQ R13, DX
	SYSCALL
	// {4, errno}
	NEGL AX
	MOVL AX, 12(SP)
	MOVL $4, AX
	MOVL AX, 8(SP)
	MOVL $1, AX
	MOVQ R15, DI
	LEAQ 8(SP), SI
	MOVL $8, DX
	SYSCALL
	MOVL $231, AX
	MOVL $127, DI
	SYSCALL
	JMP  exit
