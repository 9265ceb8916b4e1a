package sandbox

import (
	"context"
	"encoding/json"
	"os"
	"runtime"
	"testing"

	"go.uber.org/goleak"
)

// helperEnv makes the test binary do the acts that it is told, instead of the tests.
const helperEnv = "SANDBOX_TEST_HELPER"

// An actor acts on its first thread: what is a thread's own, such as the signal at its parent's death, is not that of others.
func init() {
	if os.Getenv(helperEnv) == "acts" {
		runtime.LockOSThread()
	}
}

func TestMain(m *testing.M) {
	switch os.Getenv(helperEnv) {
	case "acts":
		os.Exit(actor())
	case "core":
		os.Exit(strictCore())
	case "probe":
		os.Exit(tellHost())
	}
	_, _, _ = wrapHere() // who needs it is told
	goleak.VerifyTestMain(m)
}

// lacks ends a test that the host cannot do: it is skipped, unless the host must have all that a sandbox needs.
func lacks(t testing.TB, why any) {
	t.Helper()
	if os.Getenv("AGENTSCHED_REQUIRE_SANDBOX") != "" {
		t.Fatal(why)
	}
	t.Skip(why)
}

// told is a Host as another process tells of it.
type told struct {
	Best                                          Level
	Landlock, Notify, Standard, Namespaces, Bwrap string
	Reasons, NotHeld                              []string
}

// tellHost prints what this process finds that the host can do.
func tellHost() int {
	h := Probe(context.Background())
	t := told{NotHeld: h.NotHeld(Standard)}
	t.Best, t.Reasons = h.Best()
	for to, err := range map[*string]error{&t.Landlock: h.Landlock, &t.Notify: h.Notify, &t.Standard: h.Standard, &t.Namespaces: h.Namespaces, &t.Bwrap: h.Bubblewrap} {
		if err != nil {
			*to = err.Error()
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(t); err != nil {
		return 1
	}
	return 0
}
