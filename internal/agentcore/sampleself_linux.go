package agentcore

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"

	"github.com/agentsched/agentsched/watchdog"
)

// SelfUse returns what this process uses. What cannot be read is negative, and
// the error says why; the rest is good.
func SelfUse() (watchdog.CoreUse, error) {
	use := watchdog.CoreUse{RSSBytes: -1, CPU: -1, OpenFiles: -1, Goroutines: runtime.NumGoroutine()}
	rss, rssErr := residentBytes()
	if rssErr == nil {
		use.RSSBytes = rss
	}
	s, cpuErr := readStat("self")
	if cpuErr == nil {
		use.CPU = s.own
	}
	files, filesErr := openFiles()
	if filesErr == nil {
		use.OpenFiles = files
	}
	if err := errors.Join(rssErr, cpuErr, filesErr); err != nil {
		return use, fmt.Errorf("read what the core uses: %w", err)
	}
	return use, nil
}

// residentBytes reads the second number of /proc/self/statm, in pages.
func residentBytes() (int64, error) {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, err
	}
	fields := bytes.Fields(text)
	if len(fields) < 2 {
		return 0, fmt.Errorf("parse statm %q: unknown format", text)
	}
	pages, err := strconv.ParseInt(string(fields[1]), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("parse statm %q: %w", text, err)
	}
	return pages * int64(os.Getpagesize()), nil
}

func openFiles() (int, error) {
	dir, err := os.Open("/proc/self/fd")
	if err != nil {
		return 0, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	return len(names) - 1, err // not counting dir
}
