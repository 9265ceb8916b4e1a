package agentcli_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/agentsched/agentsched/job"
)

// ensureDir is set for a child process of a test: it installs the
// kinds that are its arguments into that folder and ends.
const ensureDir = "AGENTCLI_TEST_ENSURE_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(ensureDir); dir != "" {
		var kinds []job.WorkerKind
		for _, kind := range os.Args[1:] {
			kinds = append(kinds, job.WorkerKind(kind))
		}
		if _, err := catalog.Ensure(context.Background(), dir, kinds, silent); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}
