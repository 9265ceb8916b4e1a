package cli

import (
	"bytes"
	"encoding/binary"
	"os"
	"strconv"
	"strings"
)

// mainPackage is this program's, as the program itself says.
const mainPackage = "github.com/agentsched/agentsched/cmd/scheduler"

// isOurs reports whether a process runs a program that was built from mainPackage,
// of whatever version.
func isOurs(pid int) bool {
	return mainPackageOf("/proc/"+strconv.Itoa(pid)+"/exe") == mainPackage
}

// How a program is read, in bytes: piece by piece, each with the beginning of the next,
// which holds the build information that begins in the piece.
const (
	maxProgram = 256 << 20
	piece      = 1 << 20
	overlap    = 64 << 10
)

// mainPackageOf returns the path of the main package of a Go program, "" of another
// file. It looks for the build information as debug/buildinfo describes it, in the form
// that Go has written since 1.18. That package itself has readers of all formats of
// programs, which make this one 0.6 MB larger.
func mainPackageOf(file string) string {
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	buffer := make([]byte, piece+overlap)
	for at := int64(0); at < maxProgram; at += piece {
		n, err := f.ReadAt(buffer, at)
		if path := buildPath(buffer[:n]); path != "" {
			return path
		}
		if err != nil {
			return ""
		}
	}
	return ""
}

// buildPath returns the path of the main package out of a part of a program.
func buildPath(text []byte) string {
	const align, header, inline = 16, 32, 2
	magic := append([]byte{0xff}, " Go buildinf:"...)
	for at := 0; ; at += align {
		next := bytes.Index(text[at:], magic)
		if next < 0 || len(text) < at+next+header {
			return ""
		}
		if at += next; at%align != 0 || text[at+15]&inline == 0 {
			at -= at % align
			continue
		}
		_, rest := lengthed(text[at+header:]) // the version of Go
		info, _ := lengthed(rest)
		for line := range strings.Lines(string(info)) {
			// The first line follows 16 bytes that mark the beginning.
			if _, path, ok := strings.Cut(line, "path\t"); ok {
				return strings.TrimSpace(path)
			}
		}
	}
}

// lengthed returns the bytes behind their length, and what follows.
func lengthed(b []byte) (value, rest []byte) {
	n, size := binary.Uvarint(b)
	if size <= 0 || n > uint64(len(b)-size) {
		return nil, nil
	}
	return b[size : size+int(n)], b[size+int(n):]
}
