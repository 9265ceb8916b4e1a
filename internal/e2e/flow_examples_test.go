package e2e

// The case studies of examples/, as they are, killed half-way and finished; and
// with the agents' CLIs in the place of the shell.

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/agentsched/agentsched/internal/scriptmodel"
	"github.com/agentsched/agentsched/internal/testrun"
	"github.com/agentsched/agentsched/job"
)

// example returns the path of an example's job file after change, with the
// example's folder copied beside it.
func (b *bench) example(name, file string, change func(doc obj)) string {
	b.t.Helper()
	dir := b.folder(name)
	if err := os.CopyFS(dir, os.DirFS(filepath.Join("..", "..", "examples", name))); err != nil {
		b.t.Fatal(err)
	}
	path := filepath.Join(dir, file)
	if change == nil {
		return path
	}
	text, err := os.ReadFile(path)
	if err != nil {
		b.t.Fatal(err)
	}
	var doc obj
	if err := yaml.Unmarshal(text, &doc); err != nil {
		b.t.Fatal(err)
	}
	change(doc)
	b.write(path, asJSON(b.t, doc))
	return path
}

// auditReport is what the security audit says at its end.
func (b *bench) auditReport() (r struct {
	High, Medium, Low int
	Verdict           string
}) {
	b.t.Helper()
	o := b.last(b.show("report"))
	if o == nil {
		b.fatalf("there is no report")
	}
	if err := json.Unmarshal([]byte(o.Answer), &r); err != nil {
		b.fatalf("the report: %v\n%s", err, o.Answer)
	}
	return r
}

// TestSecurityAudit: three scanners at once, one synthesis.
func TestSecurityAudit(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	gate := b.folder("gate")
	file := b.example("security-audit", "audit.yaml", func(doc obj) {
		for _, j := range doc["jobs"].([]any) {
			if j := j.(obj); j["id"] == "report" { // not before the kill
				j["instructions"] = "until test -e " + gate + "; do sleep 0.05; done\n" + j["instructions"].(string)
			}
		}
	})
	r := b.start("run", file)
	r.awaitCore(1)
	b.eventually("a scanner has ended", func() bool { return b.isDone("secrets") || b.isDone("code") || b.isDone("dependencies") })
	r.killAll()
	r.close()
	b.write(gate, "")
	r = b.start("run", file)
	r.exit(0)
	if got := b.auditReport(); got.High != 4 || got.Medium != 2 || got.Low != 0 || got.Verdict != "fail" {
		t.Errorf("the report is %+v", got)
	}
	for _, name := range []string{"secrets", "code", "dependencies", "report"} {
		if j := b.show(name); j.Job.ExitKind != job.ExitSucceeded {
			t.Errorf("%s: %s", name, asJSON(t, j))
		}
	}
	if out, errs, code := b.command("reputation"); code != 0 || !strings.Contains(out, "security/scanner") {
		t.Errorf("reputation: exit code %d\n%s%s", code, out, errs)
	}
	if out, errs, code := b.command("agents", "show", "scanner"); code != 0 || !strings.Contains(out, "dependencies") {
		t.Errorf("agents show: exit code %d\n%s%s", code, out, errs)
	}
	b.soundState()
}

// TestSecurityAuditByAgents: the same with an agent's CLI for each scanner; one is
// not sure of itself and waits for a person.
func TestSecurityAuditByAgents(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.use("codex", "claude", "opencode")
	say := func(model, file string, line int, severity, confidence string) {
		b.play(model, scriptmodel.Play(scriptmodel.Say(`{"findings":[{"file":"`+file+`","line":`+string(rune('0'+line))+`,"what":"found","severity":"`+severity+`"}],"confidence":`+confidence+`}`)))
	}
	say("scan-secrets", "config.py", 4, "high", "0.9")
	say("scan-code", "orders.py", 6, "high", "0.3")
	say("scan-dependencies", "requirements.txt", 1, "low", "0.9")
	kinds := map[string]string{"secrets": "codex", "code": "claude", "dependencies": "opencode"}
	file := b.example("security-audit", "audit.yaml", func(doc obj) {
		for _, j := range doc["jobs"].([]any) {
			j := j.(obj)
			if kind := kinds[j["id"].(string)]; kind != "" {
				j["worker"], j["model"], j["instructions"] = kind, "scan-"+j["id"].(string), "Look for "+j["id"].(string)+"."
			}
		}
	})
	r := b.start("run", file)
	r.awaitCore(1)
	b.eventually("the agent that is not sure waits", func() bool { return b.waiting() == "code" && b.isDone("secrets") && b.isDone("dependencies") })
	r.killAll()
	r.close()
	r = b.start("run", file)
	r.awaitCore(1)
	if out, errs, code := b.command("approve", "code"); code != 0 {
		t.Fatalf("approve: exit code %d\n%s%s", code, out, errs)
	}
	r.exit(0)
	if got := b.auditReport(); got.High != 2 || got.Low != 1 || got.Verdict != "fail" {
		t.Errorf("the report is %+v", got)
	}
	for name := range kinds {
		if j := b.show(name); j.Job.Attempts != 1 {
			t.Errorf("%s was run %d times: what had ended was paid for twice", name, j.Job.Attempts)
		}
	}
	b.soundState()
}

// TestLegalAnalysis: four steps in a line, each of which a person looks at; one is
// rejected once.
func TestLegalAnalysis(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	file := b.example("legal-analysis", "analysis.yaml", nil)
	r := b.start("run", file)
	r.awaitCore(1)
	for _, step := range []string{"extract", "risks", "memo", "file"} {
		b.eventually(step+" waits for a person", func() bool { return b.waiting() == step })
		if step == "risks" {
			r.killAll()
			r.close()
			r = b.start("run", file)
			r.awaitCore(1)
			if out, errs, code := b.command("reject", step, "-m", "look again"); code != 0 {
				t.Fatalf("reject: exit code %d\n%s%s", code, out, errs)
			}
			b.eventually("it was done again", func() bool { return b.waiting() == step })
		}
		if out, errs, code := b.command("approve", step); code != 0 {
			t.Fatalf("approve %s: exit code %d\n%s%s", step, code, out, errs)
		}
	}
	r.exit(0)
	if p := b.patchOf("memo"); !strings.Contains(p, "+- [high] lease.txt: 4. Liability.") || strings.Contains(p, "clauses.tsv") {
		t.Errorf("the memo's patch is\n%s", p)
	}
	if o := b.last(b.show("file")); o == nil || !strings.HasPrefix(o.Answer, "filed under ") {
		t.Errorf("the last step: %s", asJSON(t, o))
	}
	b.soundState()
}

// TestLegalAnalysisByAgents: the same with an agent's CLI for each of the first
// three steps.
func TestLegalAnalysisByAgents(t *testing.T) {
	testrun.Long(t, "the security audit is played by the real agents as well")
	t.Parallel()
	b := newBench(t)
	b.use("codex", "claude", "opencode")
	b.play("m-extract", scriptmodel.Play(scriptmodel.Edit("clauses.tsv", "lease.txt\t4. Liability\n"), scriptmodel.Say("1 clause")))
	b.play("m-risks", scriptmodel.Play(scriptmodel.Edit("risks.tsv", "high\tlease.txt\n"), scriptmodel.Say("1 risk")))
	b.play("m-memo", scriptmodel.Play(scriptmodel.Edit("memo.md", "one high risk\n"), scriptmodel.Say("written")))
	kinds := map[string]string{"extract": "codex", "risks": "claude", "memo": "opencode"}
	file := b.example("legal-analysis", "analysis.yaml", func(doc obj) {
		for _, j := range doc["jobs"].([]any) {
			j := j.(obj)
			if kind := kinds[j["id"].(string)]; kind != "" {
				j["worker"], j["model"], j["instructions"] = kind, "m-"+j["id"].(string), "Do your step."
			}
		}
	})
	r := b.start("run", file)
	r.awaitCore(1)
	for _, step := range []string{"extract", "risks", "memo", "file"} {
		b.eventually(step+" waits for a person", func() bool { return b.waiting() == step })
		if step == "memo" {
			r.killAll()
			r.close()
			r = b.start("run", file)
			r.awaitCore(1)
		}
		if out, errs, code := b.command("approve", step); code != 0 {
			t.Fatalf("approve %s: exit code %d\n%s%s", step, code, out, errs)
		}
	}
	r.exit(0)
	if p := b.patchOf("memo"); !strings.Contains(p, "+one high risk") || strings.Contains(p, "risks.tsv") {
		t.Errorf("the memo's patch is\n%s", p)
	}
	b.soundState()
}

// TestLegalFailures: in the domain legal a crash is for a person to decide, before
// the team does anything, and what takes too long goes on with the next worker.
func TestLegalFailures(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.config["workers"].(obj)["slow"] = obj{"adapter": "exec", "command": []string{"/bin/sh", "-c", "sleep " + b.unique()}}
	crashed := b.folder("crashed")
	file := b.example("legal-analysis", "analysis.yaml", func(doc obj) {
		for _, j := range doc["jobs"].([]any) {
			j := j.(obj)
			switch script := j["instructions"].(string); j["id"] {
			case "extract":
				j["instructions"] = "if ! test -e " + crashed + "; then touch " + crashed + "; kill -KILL $$; fi\n" + script
			case "risks":
				j["worker"], j["fallback"], j["limits"] = "slow", []string{"shell"}, obj{"timeout": "10s"}
			}
		}
	})
	r := b.start("run", file)
	r.awaitCore(1)
	b.eventually("a person is asked about the crash", func() bool { return b.waiting() == "extract" })
	if e := b.entry("extract"); e.Attempts != 1 || !strings.Contains(e.Approval.Why, "CRASH") || !strings.Contains(e.Approval.Why, "a person decides") {
		t.Errorf("after the crash: %s", asJSON(t, e))
	}
	answer := func(args ...string) {
		t.Helper()
		if out, errs, code := b.command(args...); code != 0 {
			t.Fatalf("%v: exit code %d\n%s%s", args, code, out, errs)
		}
	}
	answer("reject", "extract", "-m", "once more")
	b.eventually("it is done again", func() bool { e := b.entry("extract"); return e.Attempts == 2 && e.Held == job.HeldForApproval })
	answer("approve", "extract")
	for _, step := range []string{"risks", "memo", "file"} {
		b.eventually(step+" waits for a person", func() bool { return b.waiting() == step })
		answer("approve", step)
	}
	r.exit(0)
	j := b.show("risks")
	if len(j.Attempts) != 2 || j.Attempts[0].Outcome.Class != job.Timeout || j.Attempts[1].Choice.Worker != "shell" {
		t.Errorf("the step that took too long: %s", asJSON(t, j))
	}
	for _, e := range b.list() {
		if strings.Contains(string(e.Spec.Name), "+") {
			t.Errorf("the team has restarted %s", e.Spec.Name)
		}
	}
	b.soundState()
}
