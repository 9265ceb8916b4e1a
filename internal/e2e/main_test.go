package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/agentsched/agentsched/internal/agentcore"
	"github.com/agentsched/agentsched/internal/testrun"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker/agentcli"
)

// programs is the folder that TestMain has built the two programs into:
// scheduler, and agentcore beside it, where the scheduler finds it.
var programs string

func TestMain(m *testing.M) {
	if help := agentcore.Helper(os.Args); help != nil { // adapters of real CLIs are also driven without a scheduler
		os.Exit(help())
	}
	if os.Getenv(fakeVariable) != "" {
		fakeCoreMain()
		return
	}
	end, err := testrun.Keep()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	dir, err := os.MkdirTemp("", "e2e-bin-")
	if err == nil {
		programs = dir
		cmd := exec.Command("go", "build", "-o", dir+"/", "./cmd/scheduler", "./cmd/agentcore")
		cmd.Dir = filepath.Join("..", "..")
		var out []byte
		if out, err = cmd.CombinedOutput(); err != nil {
			err = fmt.Errorf("%w\n%s", err, out)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "build the programs:", err)
		end()
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		end()
		os.Exit(code)
	}))
}

func schedulerProgram() string { return filepath.Join(programs, "scheduler") }
func coreProgram() string      { return filepath.Join(programs, "agentcore") }

// cli returns the path of a worker CLI at its pinned version. Without it the
// test is skipped, but where CI or AGENTSCHED_REQUIRE_WORKERS says that it must
// be there, it fails.
func cli(t *testing.T, kind job.WorkerKind) string {
	t.Helper()
	dir := os.Getenv("AGENTSCHED_TEST_WORKERS")
	if dir == "" {
		var err error
		if dir, err = filepath.Abs(filepath.Join("..", "..", ".cache", "workers")); err != nil {
			t.Fatal(err)
		}
	}
	if path := agentcli.CatalogOf(agentcore.Adapters()).Find(dir, []job.WorkerKind{kind})[kind]; path != "" {
		return path
	}
	miss := fmt.Sprintf("%s %s is not in %s: `go run ./cmd/scheduler install-workers --dir .cache/workers` installs it, AGENTSCHED_TEST_WORKERS names another folder", kind, agentcli.CatalogOf(agentcore.Adapters()).Package(kind).Version, dir)
	if os.Getenv("CI") != "" || os.Getenv("AGENTSCHED_REQUIRE_WORKERS") != "" {
		t.Fatal(miss)
	}
	t.Skip(miss)
	return ""
}
