package e2e

// Workspaces that travel: worktrees of a repository that a job names by its address, and of a
// folder that only the submitter's host has.

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/internal/workspace/travel"
	"github.com/agentsched/agentsched/job"
)

// TestRepository: each job begins with the base as it is then; a resumed workspace stays
// where it was, and the repository itself gets nothing.
func TestRepository(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.git("branch", "v1")
	r := b.serve()
	repo := func(address, base string) obj {
		w := obj{"repo": address}
		if base != "" {
			w["base"] = base
		}
		return obj{"workspace": w}
	}
	script := "cat README.md; git log --oneline | wc -l; echo more > new; git rev-parse --abbrev-ref HEAD"
	b.submit(b.jobsOf("website", "one.yaml", with(shell("one", nil, script, nil), repo("file://"+b.repo, "main"))))
	r.end("one", job.RunCompleted)
	b.write(filepath.Join(b.repo, "README.md"), "it has moved\n")
	b.git("commit", "-qam", "second")
	b.submit(b.jobsOf("website", "two.yaml",
		with(shell("two", nil, script, nil), repo("file://"+b.repo, "main")),
		with(shell("old", nil, script, nil), repo(b.repo, "v1")),
		with(shell("none", nil, "true", nil), repo(b.repo, "v2")),
	))
	r.end("two", job.RunCompleted)
	r.end("old", job.RunCompleted)
	r.end("none", job.RunFailed)
	for name, want := range map[string]string{"one": "a repository\n1\n", "two": "it has moved\n2\n", "old": "a repository\n1\n"} {
		o := b.last(b.show(name))
		if !strings.HasPrefix(o.Answer, want) || !strings.Contains(o.Answer, "agentsched/"+name) {
			t.Errorf("%s printed %q, want %q and its branch", name, o.Answer, want)
		}
		if len(o.Files) != 1 || o.Files[0].Path != "new" || o.Commit == nil {
			t.Errorf("%s has changed %+v, with the commit %v", name, o.Files, o.Commit)
		}
	}
	if j := b.show("none"); j.Job.DeadLetter == "" || b.last(j).Class != job.Config || !strings.Contains(b.last(j).Message, `no branch or tag "v2"`) {
		t.Errorf("a base that does not exist: %+v", b.last(j))
	}
	if out := b.git("for-each-ref", "--format=%(refname)"); strings.Contains(out, "agentsched") {
		t.Errorf("the repository has got refs:\n%s", out)
	}
	if mirrors, _ := filepath.Glob(filepath.Join(b.state, "mirrors", "*", "HEAD")); len(mirrors) != 2 { // one for each address
		t.Errorf("mirrors are %v", mirrors)
	}
	// Neither the scheduler's own folder nor one that is none is taken.
	for address, want := range map[string]string{b.state: "scheduler's own folder", filepath.Join(b.dir, "nothing"): "does not exist"} {
		if _, errs, code := b.trySubmit(b.jobsOf("website", "bad.yaml", with(shell("bad", nil, "true", nil), repo(address, "")))); code != 2 || !strings.Contains(errs, want) {
			t.Errorf("%s: exit code %d, %s, want %q", address, code, errs, want)
		}
	}
	r.stop()
	if _, errs, code := b.command("clean", "--force", "one"); code != 0 {
		t.Errorf("clean: %s", errs)
	}
	if _, err := os.Stat(filepath.Join(b.state, "work", string(b.show("one").Job.ID))); !os.IsNotExist(err) {
		t.Errorf("the workspace is still there: %v", err)
	}
}

// laptop is a submitter's host: it has folders and a token, and no scheduler.
type laptop struct {
	b    *bench
	repo string
	env  []string
}

// laptop makes one with a repository, whose files are in all states that there are.
func (b *bench) laptop(base, token string) *laptop {
	b.t.Helper()
	l := &laptop{b: b, repo: b.folder("laptop", "repo"), env: []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + b.folder("laptop"), "TMPDIR=" + b.folder("laptop"), "LANG=C.UTF-8", "AGENTSCHED_SERVER=" + base, "AGENTSCHED_TOKEN=" + token}}
	if err := os.MkdirAll(filepath.Join(l.repo, "web"), 0o700); err != nil {
		b.t.Fatal(err)
	}
	l.git("init", "-q", "-b", "main")
	l.files(map[string]string{"web/a.txt": "1\n2\n3\n4\n5\n6\n7\n8\n9\n", "gone": "x\n", "staged": "old\n", "run.sh": "echo hi\n", ".gitignore": "secret\n",
		"large.bin": "version https://git-lfs.github.com/spec/v1\noid sha256:" + strings.Repeat("a", 64) + "\nsize 12345\n"})
	l.git("add", "-A")
	l.git("commit", "-q", "-m", "start")
	l.files(map[string]string{"web/a.txt": "one\n2\n3\n4\n5\n6\n7\n8\n9\n", "staged": "new\n", "web/untracked": "mine\n", "secret": "ignored\n"})
	l.git("add", "staged")
	if err := errors.Join(os.Remove(filepath.Join(l.repo, "gone")), os.Chmod(filepath.Join(l.repo, "run.sh"), 0o755)); err != nil {
		b.t.Fatal(err)
	}
	return l
}

func (l *laptop) files(files map[string]string) {
	l.b.t.Helper()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(l.repo, name), []byte(text), 0o644); err != nil {
			l.b.t.Fatal(err)
		}
	}
}

func (l *laptop) git(args ...string) string {
	l.b.t.Helper()
	return l.feed("", args...)
}

// feed is git with a standard input.
func (l *laptop) feed(input string, args ...string) string {
	l.b.t.Helper()
	cmd := exec.Command("git", append([]string{"-C", l.repo, "-c", "user.name=ann", "-c", "user.email=ann@localhost"}, args...)...)
	cmd.Env, cmd.Stdin = l.env, strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		l.b.fatalf("git %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// command runs a command of the scheduler in a folder of the repository.
func (l *laptop) command(folder string, args ...string) (stdout, stderr string, code int) {
	l.b.t.Helper()
	cmd := exec.Command(schedulerProgram(), args...)
	cmd.Dir, cmd.Env = filepath.Join(l.repo, folder), l.env
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		l.b.fatalf("scheduler %v: %v", args, err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// do wants a command to succeed, and returns what it printed.
func (l *laptop) do(folder string, args ...string) (stdout, stderr string) {
	l.b.t.Helper()
	out, errs, code := l.command(folder, args...)
	if code != 0 {
		l.b.fatalf("scheduler %v: exit code %d\n%s%s", args, code, out, errs)
	}
	return out, errs
}

// TestTravel: a folder that only the submitter's host has goes to the scheduler as it is,
// and what the job changed comes back.
func TestTravel(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.listenTCP()
	r := b.serve()
	base, _ := b.link()
	l := b.laptop(base, b.token("ann", "submit"))
	head := strings.TrimSpace(l.git("rev-parse", "HEAD"))
	script := "pwd; cat a.txt untracked ../staged; ls -l ../run.sh | cut -c1-10; ls ../gone ../secret 2>&1 | wc -l; git log --oneline | wc -l; sed -i s/9/nine/ a.txt; echo new > made; chmod +x made; rm untracked"
	submit := func(name string) string {
		l.files(map[string]string{"web/job.yaml": asJSON(t, obj{"tenant": "tests", "jobs": []obj{shell(name, obj{"path": "."}, script, nil)}})})
		_, errs := l.do("web", "submit", "job.yaml")
		r.end(job.Name(name), job.RunCompleted)
		return errs
	}
	if errs := submit("first"); !strings.Contains(errs, "with what is not committed") || !strings.Contains(errs, "sent; ignored files stay here") ||
		!strings.Contains(errs, `not brought along: "large.bin" is a pointer of Git LFS`) {
		t.Errorf("submit said %q", errs)
	}
	j := b.show("first")
	if want := "one\n2\n3\n4\n5\n6\n7\n8\n9\nmine\nnew\n-rwxr-xr-x\n2\n2"; !strings.Contains(b.last(j).Answer, "/web\n") || !strings.Contains(b.last(j).Answer, want) {
		t.Errorf("the job found %q, want %q", b.last(j).Answer, want)
	}
	if p := j.Job.Spec.Workspace.Parcel; p.Base != head || p.On != "" || p.Sub != "web" || p.Folder != filepath.Join(l.repo, "web") {
		t.Errorf("the parcel is %+v", p)
	}
	if out, _ := l.do("", "diff", "first"); !strings.Contains(out, "+nine") || strings.Contains(out, "+one") || strings.Contains(out, "staged") {
		t.Errorf("the patch is\n%s", out)
	}
	if out, _ := l.do("", "logs", "first"); !strings.Contains(out, "mine") {
		t.Errorf("the log is %s", out)
	}

	// The next one builds on the first, from what is committed meanwhile.
	l.git("add", "-A")
	l.git("commit", "-q", "-m", "second")
	if err := os.RemoveAll(b.folder("s", "mirrors")); err != nil { // as on a host that has none: it needs both
		t.Fatal(err)
	}
	submit("second")
	if p := b.show("second").Job.Spec.Workspace.Parcel; p.On != j.Job.Spec.Workspace.Parcel.Digest {
		t.Errorf("the second parcel is %+v, want one on %+v", p, j.Job.Spec.Workspace.Parcel)
	}
	if _, errs := l.do("web", "submit", "job.yaml"); !strings.Contains(errs, "has it already") {
		t.Errorf("the same was sent again: %s", errs)
	}

	// It goes where the folder is, whatever the current one, beside what has changed since.
	l.files(map[string]string{"web/a.txt": "ONE\n2\n3\n4\n5\n6\n7\n8\n9\n"})
	if out, _ := l.do("..", "apply", "first"); !strings.Contains(out, "3 files changed") {
		t.Errorf("apply said %s", out)
	}
	if text, _ := os.ReadFile(filepath.Join(l.repo, "web", "a.txt")); string(text) != "ONE\n2\n3\n4\n5\n6\n7\n8\nnine\n" {
		t.Errorf("a.txt is %q", text)
	}
	if status := l.git("status", "--porcelain"); status != " M web/a.txt\n M web/job.yaml\n D web/untracked\n?? web/made\n" {
		t.Errorf("after apply:\n%s", status)
	}
	if info, err := os.Stat(filepath.Join(l.repo, "web", "made")); err != nil || info.Mode()&0o100 == 0 {
		t.Errorf("made is %v, %v", info, err)
	}
	if _, errs, code := l.command("", "apply", "first", "--to", b.repo); code != 1 {
		t.Errorf("applied to another repository: exit code %d, %s", code, errs)
	}
	r.stop()
}

// TestTravelHostile: a bundle that is not what its parcel says, or whose files lead out of
// the folder, ends its job, and nothing of it is anywhere.
func TestTravelHostile(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.listenTCP()
	r := b.serve()
	base, _ := b.link()
	token := b.token("mallory", "submit")
	l := b.laptop(base, token)
	c, err := client.Dial(client.Options{URL: base, Token: token})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.PutParcel(t.Context(), strings.Repeat("a", 64), strings.NewReader("x"), 1); err == nil || !strings.Contains(err.Error(), "announced was aaaa") {
		t.Errorf("another digest: %v", err)
	}
	// A tree with a file outside of it, which no git would make.
	out := strings.TrimSpace(l.feed("x\n", "hash-object", "-w", "--stdin"))
	tree := strings.TrimSpace(l.feed("100644 blob "+out+"\t..\n", "mktree"))
	evil := strings.TrimSpace(l.git("commit-tree", "-m", "evil", tree))
	head := strings.TrimSpace(l.git("rev-parse", "HEAD"))
	put := func(commit string, refs map[string]string, bundled ...string) job.Parcel {
		for name, id := range refs {
			l.git("update-ref", name, id)
		}
		file := b.folder("laptop", "bundle")
		l.git(append([]string{"bundle", "create", "-q", file}, bundled...)...)
		bundle, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		p := travel.Parcel{Identity: travel.Identity{Format: "sha1", Roots: []string{commit}}, Start: travel.Start{Base: commit, Commit: commit}, Size: int64(len(bundle)), SHA256: digest(bundle)}
		text, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		whole := append(append(text, '\n'), bundle...)
		if _, err := c.PutParcel(t.Context(), digest(whole), bytes.NewReader(whole), int64(len(whole))); err != nil {
			t.Fatal(err) // nothing of a bundle is looked into here
		}
		return job.Parcel{Digest: digest(whole)}
	}
	const ref = "refs/agentsched/travel"
	for _, x := range []struct {
		name   job.Name
		parcel job.Parcel
		want   string
	}{
		{"escapes", put(evil, map[string]string{ref: evil}, ref), "check the objects of the bundle"},
		{"other", put(head, map[string]string{ref: evil}, ref), "the bundle brings"},
		{"more", put(head, map[string]string{ref: head, "refs/heads/more": evil}, ref, "refs/heads/more"), "the bundle brings"},
		{"no-sub", below(put(head, map[string]string{ref: head}, ref), "web/none"), "does not exist in commit"},
	} {
		s := tool(x.name, "true")
		s.Workspace, s.Limits.MaxAttempts = job.Workspace{Isolation: job.Worktree, Parcel: x.parcel}, 1
		if _, err := c.Submit(t.Context(), api.Submission{Source: "hostile", Jobs: []job.Spec{s}}); err != nil {
			t.Fatal(err)
		}
		r.end(x.name, job.RunFailed)
		if o := b.last(b.show(string(x.name))); !strings.Contains(o.Message, x.want) {
			t.Errorf("%s: %q, want %q", x.name, o.Message, x.want)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(b.state, "mirrors", "*", "incoming-*")); len(left) > 0 {
		t.Errorf("left are %v", left)
	}
	r.stop()
}

// below is a parcel of a folder below the top.
func below(p job.Parcel, sub string) job.Parcel { p.Sub = sub; return p }

func digest(text []byte) string {
	s := sha256.Sum256(text)
	return hex.EncodeToString(s[:])
}

// TestTravelFleet: a folder that was brought to one scheduler is there for the one that
// leads after it.
func TestTravelFleet(t *testing.T) {
	t.Parallel()
	fleet, _ := newFleet(t, 2)
	a, b := fleet[0], fleet[1]
	a.listenTCP()
	ra := a.serve()
	base, _ := a.link()
	l := a.laptop(base, a.token("ann", "submit"))
	if _, errs, code := a.command("pause"); code != 0 {
		a.fatalf("pause: %s", errs)
	}
	l.files(map[string]string{"web/job.yaml": asJSON(t, obj{"tenant": "tests", "jobs": []obj{shell("far", obj{"path": "."}, "cat a.txt untracked; echo made > made", nil)}})})
	l.do("web", "submit", "job.yaml")
	ra.stop()
	rb := b.serve()
	if _, errs, code := b.command("resume", "global"); code != 0 {
		b.fatalf("resume: %s", errs)
	}
	rb.end("far", job.RunCompleted)
	if o := b.last(b.show("far")); !strings.HasPrefix(o.Answer, "one\n2") || !strings.HasSuffix(o.Answer, "mine") {
		t.Errorf("the job found %q", o.Answer)
	}
	for _, x := range []*bench{a, b} {
		if left, _ := filepath.Glob(filepath.Join(x.state, "parcels", "*")); len(left) > 0 {
			t.Errorf("left on a host: %v", left)
		}
	}
	rb.stop()
}
