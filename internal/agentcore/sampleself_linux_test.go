package agentcore_test

import (
	"os"
	"runtime/debug"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentsched/agentsched/internal/agentcore"
)

func TestSelfGrows(t *testing.T) {
	debug.FreeOSMemory() // what other tests have left is not given back meanwhile
	before, err := agentcore.SelfUse()
	if err != nil {
		t.Fatal(err)
	}
	const size, files = 64 << 20, 10
	// Of its heap the process may have had so much already.
	block, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(block) //nolint:errcheck // the test is over
	for i := 0; i < size; i += os.Getpagesize() {
		block[i] = 1 // a page counts when it is touched
	}
	for range files {
		f, err := os.Open("/dev/null")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
	}
	for start := cpuUsed(); cpuUsed()-start < burn; {
	}
	after, err := agentcore.SelfUse()
	if err != nil {
		t.Fatal(err)
	}
	if d := after.RSSBytes - before.RSSBytes; d < size/2 {
		t.Errorf("after touching %d bytes RSS grew by %d", size, d)
	}
	if d := after.OpenFiles - before.OpenFiles; d != files {
		t.Errorf("after opening %d files there are %d more", files, d)
	}
	if d := after.CPU - before.CPU; d < burn-slack {
		t.Errorf("after using %s of CPU time it grew by %s", burn, d)
	}
	if after.Goroutines < 1 {
		t.Errorf("%d goroutines", after.Goroutines)
	}
}
