//go:build amd64 || arm64

package sandbox

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/arch/arm64/arm64asm"
	"golang.org/x/arch/x86/x86asm"
)

// TestStubCode: the stub's machine code is what testdata/stub_ARCH.txt shows: an instruction a line, behind it why.
func TestStubCode(t *testing.T) {
	for arch, code := range map[string]string{"amd64": codeAMD64, "arm64": codeARM64} {
		t.Run(arch, func(t *testing.T) { compareCode(t, arch, []byte(code)) })
	}
}

func compareCode(t *testing.T, arch string, code []byte) {
	listing, err := os.ReadFile("testdata/stub_" + arch + ".txt")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for line := range strings.Lines(string(listing)) {
		line, _, _ = strings.Cut(line, ";")
		if line = strings.Join(strings.Fields(line), " "); line != "" && !strings.HasPrefix(line, "#") {
			want = append(want, line)
		}
	}
	got := disassemble(t, arch, code)
	for i := range max(len(got), len(want)) {
		g, w := "nothing", "nothing"
		if i < len(got) {
			g = got[i]
		}
		if i < len(want) {
			w = want[i]
		}
		if g != w {
			t.Errorf("instruction %d: the code has %q, the listing %q", i, g, w)
		}
	}
}

// disassemble returns lines of an address and an instruction as the GNU assembler has it.
func disassemble(t *testing.T, arch string, code []byte) []string {
	t.Helper()
	var lines []string
	for at := 0; at < len(code); {
		text, size := "", 4
		if arch == "arm64" {
			in, err := arm64asm.Decode(code[at:])
			if err != nil && at != len(code)-4 { // the last is no instruction by purpose
				t.Fatalf("instruction at %#x: %v", at, err)
			}
			text = arm64asm.GNUSyntax(in)
			if err != nil {
				text = "udf #0"
			}
		} else {
			in, err := x86asm.Decode(code[at:], 64)
			if err != nil {
				t.Fatalf("instruction at %#x: %v", at, err)
			}
			text, size = x86asm.GNUSyntax(in, uint64(at), nil), in.Len
		}
		lines = append(lines, fmt.Sprintf("%02x %s", at, strings.Join(strings.Fields(text), " ")))
		at += size
	}
	return lines
}
