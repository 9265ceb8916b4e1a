package house

import (
	"encoding/json"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/agentsched/agentsched/"

// allowed lists, for each package, what of ours it may import. The scheduler's
// side never reaches the core's nor the other way round; only package cli sees
// both. An entry that ends in "/..." stands for everything below it.
var allowed = map[string]string{
	// The domain imports no other part: everybody speaks its words.
	"job": "internal/fields",
	// What leaves the process is plain values, so that other modules can name them.
	"api": "job",

	// The scheduler's side.
	"queue":               "job",
	"queue/sqlite":        "job queue",
	"queue/queuetest":     "job queue",
	"queue/sched":         "job queue",
	"policy":              "job internal/fields",
	"schedule":            "job queue policy ipc internal/isolation", // decides and does nothing: no clock, no I/O
	"workflow":            "job internal/fields internal/jsoncheck",
	"workflow/durable":    "job queue",
	"workflow/pipeline":   "job queue internal/fields",
	"internal/eval":       "job queue internal/fields",
	"internal/supervisor": "job ipc internal/isolation internal/proc internal/statedir",
	"internal/scheduler":  "api job queue policy schedule workflow workflow/durable workflow/pipeline internal/eval internal/fields ipc internal/isolation internal/statedir internal/supervisor internal/workspace", // workspace: the real paths of folders
	"internal/server":     "api job queue queue/sched policy workflow workflow/durable workflow/pipeline internal/daemon internal/eval ipc internal/isolation internal/scheduler internal/statedir",
	// What is said through the door of a running scheduler, and how others say it.
	"client":            "api job", // a program of another module imports it
	"internal/simulate": "job policy internal/fields internal/strictyaml",
	"internal/trigger":  "api job internal/fields internal/proc internal/statedir",
	"internal/terminal": "api job", // shows the scheduler's updates, and a scheduler as a whole
	// What looks on: it hears of every moment and changes nothing.
	"internal/telemetry": "job queue ipc internal/isolation internal/scheduler internal/supervisor watchdog", // the names of a core's metrics are the watchdog's
	"internal/audit":     "api job internal/redact internal/scheduler",

	// What the two sides say to each other.
	"ipc": "job internal/isolation",

	// The core's side.
	"permit":             "job",
	"breaker":            "job internal/fields",
	"watchdog":           "job internal/isolation internal/fields",
	"worker":             "job internal/proc",
	"worker/agentcli":    "job worker", // what the adapters of agents' CLIs share, and how those are installed
	"worker/codex":       "job worker worker/agentcli",
	"worker/claude":      "job worker worker/agentcli",
	"worker/opencode":    "job worker worker/agentcli",
	"worker/shell":       "job worker",
	"worker/exec":        "job worker",
	"worker/workertest":  "job worker",
	"internal/agentcore": "job ipc permit breaker watchdog worker worker/... internal/isolation internal/proc internal/statedir internal/workspace internal/jsoncheck internal/redact", // worker/...: the list of adapters that both programs have

	// Leaves that either side may use.
	"internal/proc":                  "",
	"internal/jsoncheck":             "",
	"internal/statedir":              "job",
	"internal/logging":               "internal/fields",
	"internal/redact":                "",
	"internal/daemon":                "client internal/proc", // client: both ends reach a long socket path in the same way
	"internal/access":                "api client internal/proc internal/statedir",
	"internal/workspace":             "job internal/statedir",
	"internal/fields":                "", // what a field of a file or a message is
	"internal/strictyaml":            "internal/fields",
	"internal/strictyaml/schematest": "internal/fields internal/strictyaml",
	"internal/jobfile":               "job internal/fields internal/jsoncheck internal/strictyaml workflow workflow/pipeline",
	"internal/config":                "job internal/fields breaker watchdog policy internal/trigger internal/strictyaml internal/eval internal/logging internal/proc", // proc: what the host has
	"internal/scriptmodel":           "",
	"internal/house":                 "",
	"internal/terminaltest":          "",
	"internal/testrun":               "", // what the tests of several packages that start processes share
	// What is out of use: the cores decide and enforce it, the scheduler keeps it.
	"internal/isolation": "job",

	// The programs join everything.
	"cmd/agentcore": "internal/agentcore",
	"internal/cli":  "...",
	// What a program of somebody else's is made with, and the one of ours.
	"app":           "internal/cli policy worker",
	"cmd/scheduler": "app",
	"internal/e2e":  "...",
	// The dashboard in a real browser.
	"internal/browser": "...",
	// The fault suite, and what its workers are told and are.
	"internal/faults":        "...",
	"internal/faults/act":    "",
	"internal/faults/puppet": "internal/faults/act",
	// How large all of it is, and should be.
	"scripts/measure": "",
}

type listed struct {
	ImportPath string
	Doc        string
	Imports    []string
}

func packages(t *testing.T) []listed {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Doc,Imports", module+"...")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("list packages: %v", err)
	}
	var all []listed
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := dec.Decode(&p); err == io.EOF {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

func TestImports(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range packages(t) {
		name := strings.TrimPrefix(p.ImportPath, module)
		if strings.HasPrefix(name, "examples/") {
			continue // what a user would write: ours by import only
		}
		seen[name] = true
		rule, known := allowed[name]
		if !known {
			t.Errorf("%s is not in the table: say what it may import, and why it is a package of its own", name)
			continue
		}
		for _, imp := range p.Imports {
			if sub, ours := strings.CutPrefix(imp, module); ours && !permits(rule, sub) {
				t.Errorf("%s imports %s; it may import: %s", name, sub, rule)
			}
		}
	}
	for name := range allowed {
		if !seen[name] && name != "internal/e2e" {
			t.Errorf("%s is in the table and does not exist", name)
		}
	}
}

func permits(rule, imp string) bool {
	return slices.ContainsFunc(strings.Fields(rule), func(r string) bool {
		if prefix, all := strings.CutSuffix(r, "..."); all {
			return strings.HasPrefix(imp, prefix)
		}
		return r == imp
	})
}

func TestEveryPackageSaysWhatItIs(t *testing.T) {
	for _, p := range packages(t) {
		if p.Doc == "" {
			t.Errorf("%s has no package comment", strings.TrimPrefix(p.ImportPath, module))
		}
	}
}
