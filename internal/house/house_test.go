package house

import (
	"encoding/json"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/agentsched/agentsched/"

// The tables list, for each package, what of ours it may import. An entry that ends in
// "/..." stands for everything below it. Both sides speak the words of what both use,
// and neither reaches the other's: see TestSides.

// both are the packages that both sides use.
var both = map[string]string{
	// The domain imports no other part: everybody speaks its words.
	"job": "internal/fields",
	// What the two sides say to each other.
	"ipc": "job internal/isolation",

	"internal/ask":                   "job internal/commands", // may the program of a run do what it asks for: the core decides by it, the scheduler stores and shows rules
	"internal/commands":              "job",                   // what a script runs: the worker that runs one checks it, and so does who answers an agent
	"internal/commands/commandstest": "",                      // what real shells run, for tests of several packages
	"internal/fields":                "",                      // what a field of a file or a message is
	"internal/isolation":             "job",                   // what is out of use: the cores decide and enforce it, the scheduler keeps it
	"internal/jsoncheck":             "",                      // values by the schemas that jobs carry
	"internal/proc":                  "",
	"internal/redact":                "",
	"internal/sandbox":               "internal/proc", // the core holds runs by it, the scheduler says what the host can do
	"internal/statedir":              "job",
	"internal/statedir/statedirtest": "internal/statedir",      // one suite for documents in files and in a database
	"internal/wire":                  "ipc",                    // how a node and a scheduler reach each other; ipc: what a frame may be
	"internal/workspace":             "job internal/statedir",  // the scheduler checks, explains and applies what the core made
	"internal/workspace/travel":      "job internal/workspace", // the scheduler packs, a node's core unpacks; workspace: how git is run, and what a folder holds
}

// schedulers are the scheduler's packages, and those of who talks with it.
var schedulers = map[string]string{
	"queue":                        "job",
	"queue/sqlite":                 "job queue",
	"queue/postgres":               "job queue queue/sqlite internal/objects internal/parcel internal/statedir", // the same store, whose truth several schedulers share; objects, parcel, statedir: and what else they do
	"queue/queuetest":              "job queue",
	"queue/sched":                  "job queue",
	"policy":                       "job internal/fields",
	"schedule":                     "job queue policy ipc internal/isolation", // decides and does nothing: no clock, no I/O
	"workflow":                     "job internal/fields internal/jsoncheck",
	"workflow/durable":             "job queue",
	"workflow/pipeline":            "job queue internal/fields",
	"internal/objects":             "internal/statedir",             // a bucket of an S3 service; statedir: how keys are read
	"internal/objects/objectstest": "",                              // such a service, for tests of several packages
	"internal/parcel":              "job internal/workspace/travel", // folders of submitters; travel: what the head of one says
	"internal/parcel/parceltest":   "job internal/parcel",           // one suite for folders and a database
	"internal/eval":                "job queue internal/fields",
	"internal/supervisor":          "job ipc internal/proc internal/statedir",
	"internal/node":                "job ipc internal/statedir internal/supervisor internal/wire",                                                                                                                                                 // both ends of what a scheduler and a host that works for it say to each other
	"internal/scheduler":           "api job queue policy permit schedule workflow workflow/durable workflow/pipeline internal/ask internal/eval internal/fields ipc internal/isolation internal/statedir internal/supervisor internal/workspace", // permit: what cores have in common is kept by a gate, too; workspace: the real paths of folders

	// The doors, and what stands behind them in the scheduler's process.
	"api":             "job",               // plain values, so that other modules can name them
	"client":          "api job",           // a program of another module imports it
	"internal/ca":     "internal/statedir", // certificates of schedulers
	"internal/access": "api client internal/proc internal/statedir",
	"internal/fleet":  "api client internal/access",                          // joins the doors of several schedulers: access knows nothing of others, and server nothing of how a request reaches them
	"internal/mcp":    "api client job internal/jsoncheck internal/terminal", // what agents of people use by MCP: it asks the API by its client alone, over stdio as over HTTP; terminal: texts of runs, cleaned
	// terminal: what agents wrote is shown without what a terminal or browser would obey
	"internal/server": "api job queue internal/terminal queue/sched policy workflow workflow/durable workflow/pipeline internal/daemon internal/eval ipc internal/isolation internal/node internal/parcel internal/scheduler internal/statedir",
	"internal/daemon": "client internal/proc", // client: both ends reach a long socket path in the same way
	// What looks on: it hears of every moment and changes nothing.
	"internal/audit":     "api job internal/redact internal/scheduler internal/statedir", // statedir: the document by which the logs of several hosts are joined
	"internal/telemetry": "job queue ipc internal/isolation internal/node internal/scheduler internal/supervisor watchdog",

	// What people write, and what they are shown.
	"internal/strictyaml":            "internal/fields",
	"internal/strictyaml/schematest": "internal/fields internal/strictyaml",
	"internal/config":                "job internal/fields breaker watchdog policy internal/trigger internal/strictyaml internal/eval internal/logging internal/proc", // proc: what the host has
	"internal/jobfile":               "job internal/fields internal/jsoncheck internal/strictyaml workflow workflow/pipeline",
	"internal/trigger":               "api job internal/fields internal/proc internal/statedir",
	"internal/simulate":              "job policy internal/fields internal/strictyaml",
	"internal/logging":               "internal/fields",
	"internal/terminal":              "api job", // shows the scheduler's updates, and a scheduler as a whole
	"internal/scriptmodel":           "",
}

// cores are the core's packages.
var cores = map[string]string{
	"permit":                      "job",
	"breaker":                     "job internal/fields",
	"watchdog":                    "job internal/isolation internal/fields",
	"worker":                      "job internal/proc internal/sandbox",
	"worker/agentcli":             "job worker", // what the adapters of agents' CLIs share, and how those are installed
	"worker/acp":                  "job worker worker/agentcli",
	"worker/codex":                "job worker worker/agentcli",
	"worker/claude":               "job worker worker/agentcli",
	"worker/shell":                "job worker internal/commands",
	"worker/opencode":             "job worker worker/agentcli worker/opencode/relay",
	"worker/opencode/relay":       "", // a process of its own beside the program, which is to need nothing else
	"worker/exec":                 "job worker",
	"worker/workertest":           "job worker internal/proc",                                                                                                                                                                                                                                                                                          // proc: a conversation is run as the core does
	"internal/egress":             "internal/fields",                                                                                                                                                                                                                                                                                                   // a run's way out: the proxy and its rules
	"internal/gateway":            "job permit internal/redact internal/gateway/credential",                                                                                                                                                                                                                                                            // a run's models, in place of the providers: permit: how rates are said; redact: errors of providers
	"internal/gateway/credential": "",                                                                                                                                                                                                                                                                                                                  // keys and logins, and nothing of requests
	"internal/gitproxy":           "internal/redact",                                                                                                                                                                                                                                                                                                   // a run's git, with credentials that stay outside
	"internal/runmcp":             "internal/jsoncheck",                                                                                                                                                                                                                                                                                                // the tools by which a run uses the scheduler: what MCP is, and nothing of runs
	"internal/agentcore":          "job ipc internal/ask permit breaker watchdog worker worker/... internal/isolation internal/proc internal/sandbox internal/egress internal/gateway internal/gateway/credential internal/gitproxy internal/runmcp internal/statedir internal/workspace internal/workspace/travel internal/jsoncheck internal/redact", // worker/...: the list of adapters that both programs have
	"cmd/agentcore":               "internal/agentcore",
}

// joined are the packages that see both sides: the scheduler's program, which can
// execute itself as the core, and what is for tests.
var joined = map[string]string{
	"internal/cli":  "...",
	"app":           "internal/cli policy worker", // what a program of somebody else's is made with
	"cmd/scheduler": "app",

	"internal/e2e":     "...",
	"internal/browser": "...", // the dashboard in a real browser
	// The fault suite, and what its workers are told and are.
	"internal/faults":        "...",
	"internal/faults/act":    "",
	"internal/faults/puppet": "internal/faults/act",
	"internal/pgtest":        "internal/testrun", // PostgreSQL servers for tests of several packages, which its keeper outlives
	"internal/terminaltest":  "internal/testrun",
	"internal/testrun":       "", // what the tests of several packages that start processes share
	"internal/house":         "",
	// How large all of it is, and should be.
	"scripts/measure": "",
}

// across are imports of one side's package by the other: settings, names of metrics, and the gate that keeps
// what the gates of all cores have in common.
var across = []string{"internal/config breaker", "internal/config watchdog", "internal/telemetry watchdog", "internal/scheduler permit"}

// allowed is all tables.
func allowed() map[string]string {
	all := maps.Clone(joined)
	for _, side := range []map[string]string{both, schedulers, cores} {
		maps.Copy(all, side)
	}
	return all
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
	allowed, seen := allowed(), map[string]bool{}
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
		for r := range strings.FieldsSeq(rule) {
			if !strings.HasSuffix(r, "...") && !slices.Contains(p.Imports, module+r) {
				t.Errorf("%s may import %s and does not", name, r)
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

// TestSides: what both sides use imports neither side, and no side the other.
func TestSides(t *testing.T) {
	for _, p := range packages(t) {
		name := strings.TrimPrefix(p.ImportPath, module)
		for _, imp := range p.Imports {
			sub, ours := strings.CutPrefix(imp, module)
			if _, free := both[sub]; !ours || free || slices.Contains(across, name+" "+sub) {
				continue
			}
			for side, packages := range map[string]map[string]string{"both sides": both, "the scheduler": schedulers, "the core": cores} {
				_, from := packages[name]
				if _, to := packages[sub]; from && !to {
					t.Errorf("%s of %s imports %s, which is not", name, side, sub)
				}
			}
		}
	}
}

// TestArchitecture: docs/architecture.md says of each package below internal/ whose it is.
func TestArchitecture(t *testing.T) {
	text, err := os.ReadFile("../../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	for name := range allowed() {
		if strings.Count(name, "/") == 1 && strings.HasPrefix(name, "internal/") && !strings.Contains(string(text), "`"+name+"`") {
			t.Errorf("docs/architecture.md does not name %s", name)
		}
	}
}

func TestEveryPackageSaysWhatItIs(t *testing.T) {
	for _, p := range packages(t) {
		if p.Doc == "" {
			t.Errorf("%s has no package comment", strings.TrimPrefix(p.ImportPath, module))
		}
	}
}
