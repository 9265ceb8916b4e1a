package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const (
	// checkTime is how long a new program may take to say its version.
	checkTime = 5 * time.Second
	// programName begins the answer of the right one.
	programName = "scheduler"
)

// Program returns the file that the name, by which this program was started, as
// of os.Args, stands for now: after an upgrade that is the new one. Where it
// stands for none, it is the file that this program was started from.
func Program(arg0 string) (string, error) {
	path, err := exec.LookPath(arg0)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err == nil {
		return path, nil
	}
	self, selfErr := os.Executable()
	if selfErr != nil {
		return "", fmt.Errorf("find the program to go on with: %w", errors.Join(err, selfErr))
	}
	return self, nil
}

// Check tells whether the program at path can take this one's place, before
// anything is stopped for it: it must be executable and answer `version` as a
// scheduler does, within five seconds. It returns the version.
func Check(ctx context.Context, path string, run Run) (version string, err error) {
	file, err := exec.LookPath(path)
	if err != nil {
		return "", fmt.Errorf("check the new program %s: %w", path, errors.Unwrap(err))
	}
	ctx, cancel := context.WithTimeoutCause(ctx, checkTime, fmt.Errorf("no answer within %s", checkTime))
	defer cancel()
	answer, err := run(ctx, []string{file, "version"}, nil)
	if err != nil {
		return "", fmt.Errorf("check the new program %s: run `version`: %w", path, err)
	}
	words := strings.Fields(string(answer))
	if len(words) < 2 || words[0] != programName {
		return "", fmt.Errorf("check the new program %s: it is no scheduler: `version` answered %.80q, want %q", path, answer, programName+" VERSION")
	}
	return words[1], nil
}
