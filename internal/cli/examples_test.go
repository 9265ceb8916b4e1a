package cli

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/rogpeppe/go-internal/txtar"
	"github.com/spf13/cobra"
	"mvdan.cc/sh/v3/syntax"
)

// example is one line of the examples that a command's help shows.
type example struct {
	of   string // the command
	line string // for sh
}

// helpExamples returns the examples of all commands, in the order of the tree.
func helpExamples(t *testing.T) (list []example) {
	for cmd := range commands(newTestMain(t, nil).rootCommand()) {
		for line := range strings.Lines(cmd.Example) {
			if line = strings.TrimSpace(line); line != "" && !cmd.Hidden {
				list = append(list, example{commandName(cmd), line})
			}
		}
	}
	return list
}

// Every example is a command line that the program takes: the command and its flags are
// there, and the number of arguments is right.
func TestExamplesParse(t *testing.T) {
	for _, x := range helpExamples(t) {
		file, err := syntax.NewParser().Parse(strings.NewReader(x.line), x.of)
		if err != nil {
			t.Errorf("%s: %s: %v", x.of, x.line, err)
			continue
		}
		calls := 0
		syntax.Walk(file, func(node syntax.Node) bool {
			call, ok := node.(*syntax.CallExpr)
			if ok && len(call.Args) > 0 && call.Args[0].Lit() == "scheduler" {
				calls++
				if err := takes(t, call.Args[1:]); err != nil {
					t.Errorf("%s: %s: %v", x.of, x.line, err)
				}
			}
			return true
		})
		if calls == 0 {
			t.Errorf("%s: %s does not call scheduler", x.of, x.line)
		}
	}
}

// takes returns why the program does not take a command line.
func takes(t *testing.T, words []*syntax.Word) error {
	args := make([]string, len(words))
	for i, word := range words {
		for _, part := range word.Parts {
			switch part := part.(type) {
			case *syntax.Lit:
				args[i] += part.Value
			case *syntax.SglQuoted:
				args[i] += part.Value
			case *syntax.DblQuoted:
				args[i] += "quoted"
			default:
				args[i] += "printed" // by another command
			}
		}
	}
	root := newTestMain(t, nil).rootCommand()
	cmd, rest, err := root.Find(args)
	if err != nil {
		return err
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	return errors.Join(cmd.ValidateRequiredFlags(), cmd.ValidateFlagGroups(), validArgs(cmd))
}

func validArgs(cmd *cobra.Command) error {
	if cmd.Args == nil {
		return nil
	}
	return cmd.Args(cmd, cmd.Flags().Args())
}

// notPlayed are examples that TestExamples leaves out, with the reason.
var notPlayed = map[string]string{
	"scheduler demo":                                               "it installs the agents' CLIs",
	"scheduler demo --yes --plain":                                 "it installs the agents' CLIs",
	"scheduler install-workers":                                    "it installs the agents' CLIs",
	"scheduler install-workers codex --dir /opt/agents":            "it installs the agents' CLIs",
	"scheduler ca init --dir /etc/agentsched/ca --expires 3650d":   "that folder is the host's",
	"scheduler mcp":                                                "an agent starts it, as TestRealMCP has one do",
	"scheduler top":                                                "it needs a terminal",
	"scheduler top --server https://build.example:7433 --every 5s": "that host is an example",
	"scheduler node --server https://queue.example.com:7433 --token-file node-a.token":              "that host is an example",
	"scheduler node --server https://a:7433,https://b:7433 --token-file t --label gpu=no --slots 8": "that host is an example",
	"scheduler restart-core --core node-a/1":                                                        "that node is an example",
	"source <(scheduler completion bash)":                                                           "it is for bash",
	"scheduler store copy sqlite: postgres://scheduler@db.example.com/agents?sslmode=verify-full":   "that host is an example",
	"scheduler store copy service=agents sqlite:":                                                   "that service is an example",
	`scheduler attach fix-login`:                                                                    "testdata/script/attach.txtar does it",
	`echo "Leave the docs alone" | scheduler attach fix-login > conversation.txt`:                   "testdata/script/attach.txtar does it",
	`scheduler tell fix-login "Leave the docs alone"`:                                               "testdata/script/conversation.txtar does it",
	`scheduler fork fix-login "Try it with the other parser"`:                                       "testdata/script/followup.txtar does it",
	`scheduler fork fix-login --name fix-login-2 "Now without the cache"`:                           "testdata/script/followup.txtar does it",
	`git diff | scheduler tell fix-login -`:                                                         "testdata/script/conversation.txtar does it",
	"scheduler takeover fix-login":                                                                  "it needs a terminal",
	"scheduler takeover fix-login --print":                                                          "internal/e2e does it",
	"scheduler handback fix-login":                                                                  "internal/e2e does it",
	"scheduler handback fix-login \"The parser is done. Write its tests.\"":                         "internal/e2e does it",
	`scheduler interrupt fix-login`:                                                                 "testdata/script/conversation.txtar does it",
	`scheduler tell fix-login "Use the other parser"`:                                               "testdata/script/conversation.txtar does it",
	`scheduler answer fix-login yes`:                                                                "testdata/script/conversation.txtar does it",
	`scheduler answer fix-login no -m "use make test instead"`:                                      "testdata/script/conversation.txtar does it",
	`scheduler answer fix-login yes --for tenant --pattern "npm test *"`:                            "testdata/script/conversation.txtar does it",
	`scheduler grants revoke --kind command "npm test *"`:                                           "testdata/script/conversation.txtar does it",
	"scheduler doctor --server https://build.example:7433 --token-file t --ca ca.crt":               "that host is an example",
}

// exampleCodes are exit codes of examples other than 0, in the world of TestExamples.
var exampleCodes = map[string]int{
	"scheduler crashes latest": exitFailed, // no core has crashed
	"scheduler pipelines replay web-testing --stage observer --from 12":                     exitFailed, // its pipeline has ended
	"scheduler dlq drop --yes $(scheduler dlq ls --older 720h --json | jq -r '.jobs[].id')": exitUsage,  // none is so old
}

// These are what happens before examples of several commands.
const (
	endBefore       = "scheduler cancel $(scheduler ls --all --status pending,running --json | jq -r '.jobs[].id'); true"
	completedBefore = "scheduler submit --wait ../jobs.yaml"
	askedBefore     = "scheduler submit ../supervised.yaml && await 'scheduler show fix-login' waiting_approval"
	allowedBefore   = completedBefore + " && scheduler allow fix-login --tenant registry.example.com && scheduler allow fix-login npm"
	deadBefore      = "! scheduler submit --wait ../broken.yaml"
	caBefore        = "rm -rf $STATE/ca && scheduler ca init && scheduler ca issue a --host a.example.com"
	pipelineFile    = "examples/web-testing/pipeline.yaml"
	// otherHostBefore makes the audit log of another host, of one record, which refers to the last of ours.
	otherHostBefore = `last=$(scheduler audit verify | sed -n 's/^last: //p'); prev=$(printf %064d 0)
body="{\"seq\":1,\"time\":\"2026-03-01T10:20:30Z\",\"prev\":\"$prev\",\"who\":{\"name\":\"scheduler\",\"role\":\"system\",\"door\":\"\"},\"action\":\"log.heads\",\"detail\":{\"instance\":\"another\",\"heads\":{\"$(sed -n 's/.*"instance":"\([^"]*\)".*/\1/p' $STATE/instance.json)\":{\"seq\":${last%%:*},\"hash\":\"${last##*:}\",\"time\":\"2026-03-01T10:20:30Z\"}}}}"
mkdir -p other-host/audit && printf '%s,"hash":"%s"}\n' "${body%?}" "$(printf %s%s "$prev" "$body" | sha256sum | cut -c1-64)" > other-host/audit/audit-000001.jsonl`
)

// beforeExample is what happens before each example of a command, or before that one
// example. Others need nothing.
var beforeExample = map[string]string{
	"approvals": askedBefore, "approvals ls": askedBefore, "approvals show": askedBefore, "approve": askedBefore, "reject": askedBefore,
	"apply": completedBefore + " && git checkout -q . && rm -rf ../other-clone && git clone -q . ../other-clone", "diff": completedBefore, "clean": completedBefore,
	"scheduler clean --cache": "for j in $(scheduler ls --all --status pending,running --json | jq -r '.jobs[].id'); do scheduler cancel $j; scheduler wait $j; done; true",
	"allow":                   completedBefore, "grants": allowedBefore, "grants ls": allowedBefore, "grants revoke": allowedBefore,
	"audit verify": "cat $STATE/audit/*.jsonl > all && head -n 3 all > audit-000001.jsonl && tail -n +4 all > audit-000002.jsonl",
	"scheduler audit verify --against other-host/audit": otherHostBefore,
	"cancel":     "scheduler submit ../slow.yaml",
	"checkpoint": "touch ../field/stay && scheduler submit ../long.yaml && await 'scheduler replay crawl' ^fetch",
	"dlq":        deadBefore, "dlq ls": deadBefore, "dlq show": deadBefore, "dlq requeue": deadBefore, "dlq drop": deadBefore,
	"dlq edit": deadBefore,
	"evaluate": completedBefore, "show": completedBefore, "logs": completedBefore, "retry": completedBefore, "wait": completedBefore + " && git checkout -q .",
	"grant show": "scheduler grant website --credits 100",
	"grant rm":   "scheduler grant website/agent-7 --tokens 500000",
	"nodes":      "scheduler nodes cordon node-a", "nodes show": "scheduler nodes cordon node-a", "nodes uncordon": "scheduler nodes cordon node-a",
	"nodes rm": "scheduler nodes cordon node-a",
	"pause":    "scheduler resume global; scheduler resume worker:codex; true", "scheduler resume global": "scheduler pause",
	"pipelines rerun":    "scheduler submit --wait --json " + pipelineFile,
	"reputation similar": "scheduler submit --wait ../judged.yaml && for j in contract lease page; do scheduler evaluate $j --quality 0.9; done",
	"restart-core":       endBefore, "upgrade": endBefore,
	"resume":  "scheduler pause worker:codex; scheduler pause workspace:.; true",
	"sandbox": completedBefore, "sandbox show": completedBefore, "sandbox exec": completedBefore,
	"submit": "echo changed >> page.html",
	"ca":     "rm -rf $STATE/ca && scheduler ca init", "ca init": "rm -rf $STATE/ca", "ca issue": caBefore, "ca ls": caBefore,
	"scheduler ca init": "rm -rf $STATE/ca",
	"token":             "scheduler token create ci; true", "token revoke": "scheduler token create ci; true",
	"scheduler token create ci --role submit --expires 90d": "scheduler token revoke ci; true",
}

// alone are commands that are played where no scheduler runs.
var alone = []string{"backup", "recover", "run", "serve"}

// Every example of the help does what it says: they are executed one after the other, as
// docs/guide.md is, in a world that has what they name (testdata/examples/world.txtar). The
// ids, the record and the port of examples stand for those of that world.
func TestExamples(t *testing.T) {
	world, err := txtar.ParseFile("../../testdata/examples/world.txtar")
	if err != nil {
		t.Fatal(err)
	}
	list := helpExamples(t)
	for _, table := range []map[string]bool{known(notPlayed), known(exampleCodes)} {
		for line := range table {
			if !slices.ContainsFunc(list, func(x example) bool { return x.line == line }) {
				t.Errorf("no command has the example %s any more", line)
			}
		}
	}
	var script strings.Builder
	play := func(withServer bool) {
		for i, x := range list {
			if slices.Contains(alone, strings.Fields(x.line)[1]) != withServer && notPlayed[x.line] == "" {
				fmt.Fprintf(&script, "# %s: %s\nexample %d\n", x.of, x.line, i)
			}
		}
	}
	script.WriteString("repo repo\ncd repo\n")
	play(false)
	script.WriteString("exec sh -c 'exec scheduler serve >served.log 2>&1' &serve&\nready\nexec scheduler submit --wait ../jobs.yaml\nexec scheduler submit --wait --json " + pipelineFile + "\n")
	play(true)
	script.WriteString("kill -INT serve\nwait serve\nnoproc\n")
	root := t.TempDir()
	file := filepath.Join(root, "examples.txtar")
	if err := os.WriteFile(file, []byte(script.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Files: []string{file},
		Setup: func(env *testscript.Env) error { return setUpExamples(env, world) },
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"repo": scriptRepo, "ready": scriptReady, "noproc": scriptNoProc,
			"example": func(ts *testscript.TestScript, neg bool, args []string) {
				i, err := strconv.Atoi(strings.Join(args, " "))
				ts.Check(err)
				list[i].play(ts)
			},
		},
	})
}

func known[V any](table map[string]V) map[string]bool {
	keys := map[string]bool{}
	for key := range table {
		keys[key] = true
	}
	return keys
}

// setUpExamples makes the world. The user is in the folder repo, a repository.
func setUpExamples(env *testscript.Env, world *txtar.Archive) error {
	if err := setUpScript(env); err != nil {
		return err
	}
	for _, f := range world.Files {
		name := filepath.Join(env.WorkDir, f.Name)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			return err
		}
		text := strings.ReplaceAll(string(f.Data), "WORK", env.WorkDir)
		if strings.HasPrefix(f.Name, "bin/") {
			text = "#!/bin/sh\n" + text
		}
		if err := os.WriteFile(name, []byte(text), 0o700); err != nil {
			return err
		}
	}
	repo := filepath.Join(env.WorkDir, "repo")
	if err := os.CopyFS(filepath.Join(repo, "examples"), os.DirFS("../../examples")); err != nil {
		return err
	}
	for to, from := range map[string]string{"jobs.yaml": "../more.yaml", "more.yaml": "../more.yaml", "new.yaml": "../new.yaml", "review.json": "../review.json", "web.json": "../web.json", "page.html": "../shop/page.html", "day.yaml": "examples/workloads/agency.yaml"} {
		text, err := os.ReadFile(filepath.Join(repo, from))
		if err == nil {
			err = os.WriteFile(filepath.Join(repo, to), text, 0o600)
		}
		if err != nil {
			return err
		}
	}
	env.Setenv("EDITOR", "sed -i.was 's/exit 3/exit 0/'")
	env.Setenv("PATH", filepath.Join(env.WorkDir, "bin")+string(os.PathListSeparator)+env.Getenv("PATH"))
	return nil
}

// exampleNames are what examples call something of the user's own, and how it is found.
var exampleNames = strings.NewReplacer("01a1fcce", "$(newest 0)", "01a1fcd0", "$(newest 1)",
	"812:5f1e…", "$(scheduler audit verify | sed -n 's/^last: //p')",
	"/opt/agentsched/bin/scheduler", "$(command -v scheduler)")

// play executes an example.
func (x example) play(ts *testscript.TestScript) {
	if before := cmp.Or(beforeExample[x.line], beforeExample[x.of]); before != "" {
		if err := ts.Exec("sh", "-c", before); err != nil {
			ts.Fatalf("before %s: %s: %v\n%s%s", x.line, before, err, ts.ReadFile("stdout"), ts.ReadFile("stderr"))
		}
	}
	line := exampleNames.Replace(x.line)
	if strings.HasPrefix(x.line, "scheduler serve") {
		line = "{ " + line + "; } & await 'scheduler status' ^scheduler; kill -INT $!; wait $!"
	}
	code := 0
	var exit *exec.ExitError
	if err := ts.Exec("sh", "-c", line); errors.As(err, &exit) {
		code = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%s: %v", x.line, err)
	}
	if want := exampleCodes[x.line]; code != want {
		ts.Fatalf("%s: %s: exit code %d, want %d\n%s%s", x.of, x.line, code, want, ts.ReadFile("stdout"), ts.ReadFile("stderr"))
	}
}
