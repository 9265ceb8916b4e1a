package faults

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/agentsched/agentsched/internal/proc"
	"github.com/agentsched/agentsched/internal/testrun"
)

// A wall clock that jumps, for one process and not for the machine.
//
// There is no namespace for CLOCK_REALTIME (time_namespaces(7): only the
// monotonic and boot clocks), and a Go program asks the kernel's vDSO, so that
// neither a preloaded library nor seccomp sees the question. But a process has
// its own copy of the vDSO's page as soon as somebody writes to it, as a
// debugger does to set a breakpoint: here, a __vdso_clock_gettime that makes
// the system call and adds the jump if CLOCK_REALTIME was asked for. The
// process then meets what it would meet if an administrator set the clock: the
// wall clock jumps in the middle of everything, the monotonic one goes on.
const canJump = true

// clockCode returns the function's code with the jump, in whole seconds:
//
//	mov eax, 228 (clock_gettime); syscall     rdi: which clock, rsi: *timespec
//	test edi, edi; jne end                    CLOCK_REALTIME is 0
//	add qword [rsi], seconds                  tv_sec
//	end: ret                                  rax: the system call's result
//
// Its length does not depend on the jump, so that it may be replaced by itself
// while it runs.
func clockCode(by time.Duration) []byte {
	code := []byte{0xb8, 228, 0, 0, 0, 0x0f, 0x05, 0x85, 0xff, 0x75, 0x07, 0x48, 0x81, 0x06}
	code = binary.LittleEndian.AppendUint32(code, uint32(int32(by/time.Second)))
	return append(code, 0xc3)
}

// jumpClock has the wall clock of a process stand so far from the true one.
func jumpClock(pid int, by time.Duration) error {
	start, end, err := vdso(pid)
	if err != nil {
		return err
	}
	mem, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer mem.Close()
	image := make([]byte, end-start)
	if _, err := mem.ReadAt(image, int64(start)); err != nil {
		return fmt.Errorf("read the vDSO of process %d: %w", pid, err)
	}
	offset, err := clockGettime(image)
	if err != nil {
		return err
	}
	code := clockCode(by)
	at := start + offset
	// Nobody may be in the middle of what is replaced.
	for range 100 {
		release, err := freeze(pid)
		if err != nil {
			return err
		}
		inside, err := anyInside(pid, at, at+uint64(len(code)))
		if err == nil && !inside {
			_, err = mem.WriteAt(code, int64(at))
			release()
			return err
		}
		release()
		if err != nil {
			return err
		}
	}
	return fmt.Errorf("process %d asks for the time whenever it is looked at", pid)
}

// vdso returns where a process has its vDSO.
func vdso(pid int) (start, end uint64, err error) {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(maps)) {
		if strings.HasSuffix(strings.TrimSpace(line), "[vdso]") {
			_, err := fmt.Sscanf(line, "%x-%x", &start, &end)
			return start, end, err
		}
	}
	return 0, 0, os.ErrNotExist // dead: a zombie has no memory
}

// clockGettime returns where in a vDSO the function is.
func clockGettime(image []byte) (uint64, error) {
	f, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return 0, fmt.Errorf("read the vDSO: %w", err)
	}
	symbols, err := f.DynamicSymbols()
	if err != nil {
		return 0, fmt.Errorf("read the vDSO: %w", err)
	}
	for _, s := range symbols {
		if s.Name == "__vdso_clock_gettime" {
			if s.Size < uint64(len(clockCode(0))) {
				return 0, fmt.Errorf("the vDSO's clock_gettime has only %d bytes", s.Size)
			}
			return s.Value, nil
		}
	}
	return 0, errors.New("the vDSO has no clock_gettime")
}

// freeze stops all threads of a process, and returns what lets them go on: if
// it was stopped before, it stays so.
func freeze(pid int) (release func(), err error) {
	if testrun.Frozen(pid) {
		return func() {}, nil
	}
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return nil, err
	}
	release = func() { _ = syscall.Kill(pid, syscall.SIGCONT) }
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for range 2000 {
		if testrun.Frozen(pid) {
			return release, nil
		}
		if _, err := proc.Find(pid); errors.Is(err, proc.ErrGone) {
			break
		}
		<-tick.C
	}
	release()
	return nil, fmt.Errorf("stop process %d: %w", pid, syscall.ESRCH)
}

// anyInside reports whether a thread of a stopped process is about to run what
// is between two addresses, or may be.
func anyInside(pid int, start, end uint64) (bool, error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/syscall", pid))
	if err != nil {
		return false, err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue
		}
		if err != nil {
			return false, err
		}
		if string(text) == "running\n" {
			return true, nil // it was killed, or told to go on, since it was stopped
		}
		fields := strings.Fields(string(text)) // the last is the program counter
		pc, err := strconv.ParseUint(strings.TrimPrefix(fields[len(fields)-1], "0x"), 16, 64)
		if err != nil {
			return false, fmt.Errorf("%s is %q, not a stopped thread's", file, text)
		}
		if pc >= start && pc < end {
			return true, nil
		}
	}
	return false, nil
}
