//go:build amd64 || arm64

package sandbox

import (
	"encoding/binary"
	"os"
	"unsafe"
)

// The init is process 1 of a strict sandbox: a program of a few hundred bytes without libc, started by bubblewrap in place
// of its own, which would leave the rest of a run to be killed without a word, tell 128+n for a signal, and let the run
// write to its memory.
//
// It is called as "init REPORT PROGRAM NAME ARG...". It makes itself unreadable (PR_SET_DUMPABLE), forks, and the child becomes
// PROGRAM, the stub, in a session of its own, with arguments from NAME on; a terminal that it has for its standard input becomes the session's. REPORT, a socket that keeps messages apart, is told
// of the program's start and end in messages of 8 bytes, a kind and a value. When the program has ended and something of it
// lives on, the init waits for an answer, asks what lives to end, waits for that for a second and ends. The kernel then kills
// what is left in the pid namespace.
//
// The code is in init_linux_amd64.s and init_linux_arm64.s.
func initImage() (code *byte, size int)

// initCode is only there to be copied. It is no function of Go's.
func initCode()

var _ = initCode

// Kinds of the init's messages.
const (
	initStarted  = 1 // sent by the program's process, before it becomes the program
	initEnded    = 2 // value: the program's wait status; nothing else is left
	initLeft     = 3 // value: as before; something is left, and waits for an answer
	initNotFound = 4 // value: the errno of the program's execve
	initReady    = 5 // sent by the init, before it forks
)

// initFile makes the init as a file in memory.
func initFile() (*os.File, error) {
	start, size := initImage()
	code := unsafe.Slice(start, size)
	data := make([]byte, 8) // none is used, but an empty segment is refused
	return memoryFile("init", [2]segment{{0, elfHeader(string(code), len(data))}, {dataOffset, data}})
}

// initMessage is what the init tells.
type initMessage struct {
	Kind  uint32
	Value int32
}

func parseInitMessage(b []byte) (m initMessage, ok bool) {
	n, err := binary.Decode(b, binary.LittleEndian, &m)
	return m, err == nil && n == len(b)
}
