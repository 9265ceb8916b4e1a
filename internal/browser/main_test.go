package browser

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/agentsched/agentsched/internal/testrun"
)

// programs is the folder that TestMain has built the two programs, and a worker that converses, into.
var programs string

func TestMain(m *testing.M) {
	end, err := testrun.Keep()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	dir, err := os.MkdirTemp("", "browser-bin-")
	if err == nil {
		programs = dir
		cmd := exec.Command("go", "build", "-o", dir+"/", "./cmd/scheduler", "./cmd/agentcore", "./examples/workers/chat")
		cmd.Dir = root
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

// root is the repository's, from here.
var root = filepath.Join("..", "..")

func schedulerProgram() string { return filepath.Join(programs, "scheduler") }

// tools are the programs and the folder of packages that a browser needs.
type tools struct{ node, chromium, modules, screenshots string }

// needTools finds them. Without one of them the test is skipped, but fails where CI
// or AGENTSCHED_REQUIRE_BROWSER says that all must be there.
func needTools(t *testing.T) tools {
	t.Helper()
	miss := func(what string) {
		t.Helper()
		what += ": scripts/browser installs what is needed of npm and says what else is missing"
		if os.Getenv("CI") != "" || os.Getenv("AGENTSCHED_REQUIRE_BROWSER") != "" {
			t.Fatal(what)
		}
		t.Skip(what)
	}
	var found tools
	var err error
	if found.node, err = exec.LookPath("node"); err != nil {
		miss("node is not on PATH")
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found.chromium, err = exec.LookPath(name); err == nil {
			break
		}
	}
	if found.chromium == "" {
		miss("neither chromium nor chromium-browser nor google-chrome is on PATH")
	}
	if found.modules, err = filepath.Abs(filepath.Join(root, ".cache", "browser", "node_modules")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"playwright-core", "axe-core"} {
		if _, err := os.Stat(filepath.Join(found.modules, name, "package.json")); err != nil {
			miss(name + " is not in " + found.modules)
		}
	}
	if found.screenshots = os.Getenv("AGENTSCHED_SCREENSHOTS"); found.screenshots == "" {
		found.screenshots = filepath.Join(root, ".cache", "screenshots")
	}
	if found.screenshots, err = filepath.Abs(found.screenshots); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(found.screenshots, 0o755); err != nil {
		t.Fatal(err)
	}
	return found
}
