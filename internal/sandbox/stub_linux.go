//go:build amd64 || arm64

package sandbox

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// The stub is an ELF program without libc: stubCode and, at dataAddress, a table of system calls. It makes the calls in
// order and then execve(2) of the program, with the arguments and environment that it was started with. Where a call
// fails that must not, it writes a stubFailure to its report pipe and exits with status 127. The pipe is closed by
// execve, so its end without a word says that the program runs. See testdata for the code as text.
//
// Data is, in words of 8 bytes: the report pipe's descriptor, the address of the program's path, and then for each call
// its number, six arguments and what is done with its result (ignored, required, or the address where its low 32 bits
// are stored). A negative number ends the table. What arguments point to follows at blobsOffset.
const (
	codeAddress = 0x400000
	dataAddress = 0x410000
	dataOffset  = dataAddress - codeAddress // in the file too; the largest page that arm64 has
	tableOffset = 16
	stepSize    = 64
	blobsOffset = 0x2000
	maxSteps    = (blobsOffset-tableOffset)/stepSize - 1
	maxImage    = 1 << 20

	ignored  = 0
	required = 1
)

// step is one call of the table.
type step struct {
	what   string // it was to do, for errors
	nr     uintptr
	args   [6]uint64
	result uint64 // ignored, required, or an address in the data
}

// image collects the stub's data.
type image struct {
	steps []step
	blobs []byte
}

// put adds bytes that an argument points to and returns their address.
func (m *image) put(data []byte) uint64 {
	for len(m.blobs)%8 != 0 {
		m.blobs = append(m.blobs, 0)
	}
	at := uint64(dataAddress + blobsOffset + len(m.blobs))
	m.blobs = append(m.blobs, data...)
	return at
}

// words is put for values that are written as they lie in memory.
func (m *image) words(values ...any) uint64 {
	var b []byte
	for _, v := range values {
		var err error
		if b, err = binary.Append(b, binary.LittleEndian, v); err != nil {
			panic(err) // a type without a size: a mistake of this package
		}
	}
	return m.put(b)
}

func (m *image) call(what string, result uint64, nr uintptr, args ...uint64) {
	s := step{what: what, nr: nr, result: result}
	copy(s.args[:], args)
	m.steps = append(m.steps, s)
}

// write makes the stub as a file in memory, sealed, which becomes path and reports at descriptor report.
func (m *image) write(path string, report int) (*os.File, error) {
	if len(m.steps) > maxSteps {
		return nil, fmt.Errorf("make the stub: %d calls, at most %d fit", len(m.steps), maxSteps)
	}
	at := m.put(append([]byte(path), 0))
	data := make([]byte, blobsOffset, blobsOffset+len(m.blobs))
	le := binary.LittleEndian
	le.PutUint64(data[0:], uint64(report))
	le.PutUint64(data[8:], at)
	row := data[tableOffset:]
	for _, s := range m.steps {
		le.PutUint64(row, uint64(s.nr))
		for i, a := range s.args {
			le.PutUint64(row[8+8*i:], a)
		}
		le.PutUint64(row[56:], s.result)
		row = row[stepSize:]
	}
	le.PutUint64(row, ^uint64(0))
	data = append(data, m.blobs...)
	if len(data) > maxImage {
		return nil, fmt.Errorf("make the stub: it would have %d bytes, at most %d are allowed", len(data), maxImage)
	}
	return memoryFile("stub", [2]segment{{0, elfHeader(stubCode, len(data))}, {dataOffset, data}})
}

// segment is what stands at an offset of a file.
type segment struct {
	offset int64
	data   []byte
}

// memoryFile makes an executable file that has no name and cannot be changed any more.
func memoryFile(name string, segments [2]segment) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3, where all are executable
		fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if errors.Is(err, unix.EACCES) {
		return nil, fmt.Errorf("make the stub in memory: %w: set sysctl vm.memfd_noexec to 0 or 1", err)
	}
	if err != nil {
		return nil, fmt.Errorf("make the stub in memory: %w", err)
	}
	f := os.NewFile(uintptr(fd), name)
	for _, s := range segments {
		if _, err := f.WriteAt(s.data, s.offset); err != nil {
			return nil, errors.Join(fmt.Errorf("write the stub to memory: %w", err), f.Close())
		}
	}
	const seals = unix.F_SEAL_WRITE | unix.F_SEAL_GROW | unix.F_SEAL_SHRINK | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		return nil, errors.Join(fmt.Errorf("seal the stub: %w", err), f.Close())
	}
	return f, nil
}

// elfHeader is the ELF and program headers, and the code behind them. See elf(5).
func elfHeader(machineCode string, dataSize int) []byte {
	const (
		header, entry = 64, 56
		code          = header + 3*entry
		gnuStack      = 0x6474e551 // without it arm64 may make all memory executable
	)
	type programHeader struct {
		Type, Flags                                uint32
		Offset, Vaddr, Paddr, Filesz, Memsz, Align uint64
	}
	size := uint64(code + len(machineCode))
	b := append([]byte("\x7fELF\x02\x01\x01"), make([]byte, 9)...) // 64 bits, little endian
	b, err := binary.Append(b, binary.LittleEndian, struct {
		Type, Machine                                        uint16
		Version                                              uint32
		Entry, Phoff, Shoff                                  uint64
		Flags                                                uint32
		Ehsize, Phentsize, Phnum, Shentsize, Shnum, Shstrndx uint16
	}{Type: 2, Machine: elfMachine, Version: 1, Entry: codeAddress + code, Phoff: header, Ehsize: header, Phentsize: entry, Phnum: 3})
	if err != nil {
		panic(err) // only for types without a size
	}
	for _, p := range []programHeader{
		{1, 4 | 1, 0, codeAddress, codeAddress, size, size, dataOffset},
		{1, 4 | 2, dataOffset, dataAddress, dataAddress, uint64(dataSize), uint64(dataSize), dataOffset},
		{gnuStack, 4 | 2, 0, 0, 0, 0, 0, 16},
	} {
		if b, err = binary.Append(b, binary.LittleEndian, p); err != nil {
			panic(err)
		}
	}
	return append(b, machineCode...)
}

// failure returns what a report says: the number of a step and an errno, 4 bytes each. The number behind the last step
// is that of execve.
func (m *image) failure(report []byte, path string) error {
	if len(report) != 8 {
		return fmt.Errorf("read the stub's report: %d bytes, want 8", len(report))
	}
	index, errno := binary.LittleEndian.Uint32(report), unix.Errno(binary.LittleEndian.Uint32(report[4:]))
	if int(index) < len(m.steps) {
		return fmt.Errorf("confine %s: %s: %w", path, m.steps[index].what, errno)
	}
	hint := ""
	if errno == unix.EACCES || errno == unix.ENOENT {
		hint = ": add its folder, and that of its interpreter, to sandbox.read"
	}
	return fmt.Errorf("execute %s in the sandbox: %w%s", path, errno, hint)
}
