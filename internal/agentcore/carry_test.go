package agentcore_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/internal/agentcore"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

// talker is a program that keeps a session in its private folder: what its script writes to $TALK/s1.
type talker struct{ moves bool }

func (talker) Scripted()                                       {}
func (a talker) Moves() bool                                   { return a.moves }
func (talker) SessionFiles(session string) []string            { return []string{"talk/" + session} }
func (talker) Locate(job.WorkerSettings) (string, error)       { return "/bin/sh", nil }
func (talker) Version(context.Context, string) (string, error) { return "1", nil }
func (talker) Start(t *worker.Task) (worker.Session, error)    { return &talkerSession{task: t}, nil }

type talkerSession struct {
	task   *worker.Task
	answer strings.Builder
}

func (s *talkerSession) Command() worker.Command {
	talk := filepath.Join(s.task.Home, "talk")
	env := worker.SetEnv(worker.SetEnv(s.task.Environ, "TALK", talk), "SESSION", s.task.Session)
	return worker.Command{Path: "/bin/sh", Args: []string{"-c", "mkdir -p $TALK\n" + s.task.Instructions}, Env: env, Dir: s.task.Dir}
}

func (s *talkerSession) Step(_ time.Time, in worker.Input) []worker.Action {
	switch in := in.(type) {
	case worker.Started:
		return worker.Events(job.Event{Kind: job.EventSession, Session: "s1"})
	case worker.Output:
		s.answer.WriteString(string(in.Line) + "\n")
	case worker.Ended:
		if in.Code != 0 {
			return []worker.Action{worker.Finish{Result: worker.Result{Class: job.Crash, Message: "it failed"}}}
		}
		return []worker.Action{worker.Finish{Result: worker.Result{Answer: s.answer.String()}}}
	}
	return nil
}

// carrying is a core whose runs keep and take sessions.
type carrying struct {
	*client
	folder string
}

func newCarrying(t *testing.T, moves bool) carrying {
	c := start(t, func(cfg *agentcore.Config) { cfg.Adapters["talker"] = talker{moves} })
	c.hello()
	c.configure(nil)
	c.patches = parcelStore{}
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "there"), []byte("as it was\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return carrying{c, folder}
}

func (c carrying) play(id job.ID, script string, change func(*ipc.SubmitJob)) job.Outcome {
	c.t.Helper()
	s := spec(script, func(s *job.Spec) {
		s.Worker, s.Workspace, s.Env = "talker", job.Workspace{Path: c.folder, Isolation: job.Copy}, []string{"MY_TOKEN"}
	})
	return c.runResolved(id, 1, s, nil, func(r *ipc.SubmitJob) {
		r.KeepSession, r.Environ = true, map[string]string{"MY_TOKEN": "tok-0123456789abcdef"}
		if change != nil {
			change(r)
		}
	})
}

// left runs an attempt that fails and returns what it has left, as another host's.
func (c carrying) left(id job.ID, script string) *ipc.Carried {
	c.t.Helper()
	o := c.play(id, script+"\nexit 1", nil)
	kept, ok := o.Artifact(job.ArtifactSession)
	if !ok || o.Session != "s1" {
		c.t.Fatalf("no session was kept: %+v", o)
	}
	from := &ipc.Carried{Session: c.elsewhere(kept)}
	if patch, ok := o.Artifact(job.ArtifactPatch); ok {
		patch = c.elsewhere(patch)
		from.Patch = job.Patch{Job: "job", Path: patch.Path, Bytes: patch.Bytes, SHA256: patch.SHA256}
	}
	return from
}

// elsewhere makes a file one of another host.
func (c carrying) elsewhere(a job.Artifact) job.Artifact {
	c.t.Helper()
	text, err := os.ReadFile(a.Path)
	if err != nil {
		c.t.Fatal(err)
	}
	a.Path = "/of/another" + a.Path
	c.patches[a.Path] = text
	return a
}

const looks = `echo "session=$SESSION"; cat $TALK/s1 $TALK/s1/* 2>/dev/null; cat there; cat made 2>/dev/null; ls -a $TALK/.. | grep -vx "[.]*\|talk\|go-build"; true`

// TestSessionMoves: a run goes on with the session of another host and with what was changed there.
func TestSessionMoves(t *testing.T) {
	c := newCarrying(t, true)
	from := c.left("a", `mkdir $TALK/s1; echo "told $MY_TOKEN" >$TALK/s1/1; echo other >$TALK/s2; ln -s /etc/passwd $TALK/s1/2; mkfifo $TALK/s1/3; echo changed >there; echo new >made`)
	o := c.play("b", looks, func(r *ipc.SubmitJob) { r.Session, r.Elsewhere, r.Carried = "s1", true, from })
	if want := "session=s1\ntold [redacted:MY_TOKEN]\nchanged\nnew\n"; !o.Succeeded() || o.Answer != want {
		t.Errorf("it goes on with %q (%+v), want %q", o.Answer, o, want)
	}
	if _, ok := o.Artifact(job.ArtifactSession); ok {
		t.Error("the session of a run that is done was kept")
	}
	// One that is not Elsewhere is taken as well where there is no private folder, and only then.
	for i, want := range []string{"session=s1\ntold [redacted:MY_TOKEN]\nchanged\nnew\n", "session=s1\ntold [redacted:MY_TOKEN]\nmore\nchanged\nnew\n"} {
		o := c.runResolved("c", i+1, spec(looks+"; echo more >>$TALK/s1/1", func(s *job.Spec) {
			s.Worker, s.Workspace = "talker", job.Workspace{Path: c.folder, Isolation: job.Copy}
		}), nil, func(r *ipc.SubmitJob) { r.Session, r.Carried = "s1", from })
		if o.Answer != want {
			t.Errorf("attempt %d goes on with %q, want %q", i+1, o.Answer, want)
		}
	}
	c.end()
}

// TestSessionDoesNotMove: where a session cannot be had, or its work does not fit, the agent starts over, and the job says why.
func TestSessionDoesNotMove(t *testing.T) {
	c := newCarrying(t, true)
	from := c.left("a", `echo told >$TALK/s1; echo changed >there`)
	archive := func(kind byte, names ...string) *ipc.Carried {
		var buf bytes.Buffer
		w := tar.NewWriter(&buf)
		for _, name := range append([]string{"agentsched.json"}, names...) {
			text := []byte(`{"worker":"talker","session":"s1","dir":"/x"}`)
			h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o600, Size: int64(len(text))}
			if name != "agentsched.json" && kind != tar.TypeReg {
				h.Typeflag, h.Linkname, h.Size, text = kind, "/etc/passwd", 0, nil
			}
			if err := w.WriteHeader(h); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write(text); err != nil {
				t.Fatal(err)
			}
		}
		w.Close()
		sum := sha256.Sum256(buf.Bytes())
		path := "/made/" + hex.EncodeToString(sum[:])
		c.patches[path] = buf.Bytes()
		return &ipc.Carried{Session: job.Artifact{Name: job.ArtifactSession, Path: path, Bytes: int64(buf.Len()), SHA256: hex.EncodeToString(sum[:])}}
	}
	with := func(change func(*ipc.Carried)) *ipc.Carried {
		other := *from
		change(&other)
		return &other
	}
	clash := c.left("clash", `echo told >$TALK/s1; echo "another line" >there`)
	if err := os.WriteFile(filepath.Join(c.folder, "there"), []byte("changed meanwhile\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for id, test := range map[job.ID]struct {
		carried *ipc.Carried
		why     string
	}{
		"none":      {nil, "its files were not kept"},
		"changed":   {with(func(x *ipc.Carried) { x.Session.SHA256 = strings.Repeat("0", 64) }), "cannot be trusted"},
		"unhashed":  {with(func(x *ipc.Carried) { x.Session.SHA256 = "" }), "or no hash"},
		"huge":      {with(func(x *ipc.Carried) { x.Session.Bytes = 1 << 40 }), "has 1099511627776 bytes"},
		"gone":      {with(func(x *ipc.Carried) { x.Session.Path = "/gone" }), "is missing: /gone: it is nowhere"},
		"patchless": {with(func(x *ipc.Carried) { x.Patch.Path = "/gone" }), "is missing: /gone: it is nowhere"},
		"outside":   {archive(tar.TypeReg, "../s1"), `"../s1", which is no file of a session`},
		"absolute":  {archive(tar.TypeReg, "/etc/x"), `"/etc/x", which is no file of a session`},
		"config":    {archive(tar.TypeReg, "config.toml"), `"config.toml", which is no file of a session`},
		"link":      {archive(tar.TypeSymlink, "talk/s1"), `"talk/s1", which is no file of a session`},
		"twice":     {archive(tar.TypeReg, "talk/s1", "talk/s1"), "exists"},
		"clash":     {clash, "apply what an earlier attempt of job"},
	} {
		o := c.play(id+"-2", looks, func(r *ipc.SubmitJob) { r.Session, r.Elsewhere, r.Carried = "s1", true, test.carried })
		if want := "session=\nchanged meanwhile\n"; !o.Succeeded() || o.Answer != want {
			t.Errorf("%s: it begins with %q (%+v), want %q", id, o.Answer, o, want)
		}
		e := c.await(func(e job.Event) bool { return e.Job == id+"-2" && e.Kind == job.EventWarning })
		if !strings.HasPrefix(e.Text, "the agent starts over: its session was on another host, and ") || !strings.Contains(e.Text, test.why) {
			t.Errorf("%s: the job says %q, want %q in it", id, e.Text, test.why)
		}
	}
	c.patches = nil
	if o := c.play("later", looks, func(r *ipc.SubmitJob) { r.Session, r.Elsewhere, r.Carried = "s1", true, from }); o.Class != job.Network {
		t.Errorf("a scheduler that cannot answer now: %s %q", o.Class, o.Message)
	}
	c.end()
}

// TestSessionStaysInItsFolder: a program whose sessions are of a folder starts over where that has another path.
func TestSessionStaysInItsFolder(t *testing.T) {
	c := newCarrying(t, false)
	from := c.left("a", `echo told >$TALK/s1; echo changed >there`)
	o := c.play("b", looks, func(r *ipc.SubmitJob) { r.Session, r.Elsewhere, r.Carried = "s1", true, from })
	if want := "session=\nas it was\n"; o.Answer != want {
		t.Errorf("it begins with %q, want %q", o.Answer, want)
	}
	if e := c.await(func(e job.Event) bool { return e.Job == "b" && e.Kind == job.EventWarning }); !strings.Contains(e.Text, "it is of a folder that has another path here: ") {
		t.Errorf("the job says %q", e.Text)
	}
	o = c.play("a", looks, func(r *ipc.SubmitJob) { r.Session, r.Elsewhere, r.Carried = "s1", true, from }) // as on a host with the same paths
	if want := "session=s1\ntold\nchanged\n"; o.Answer != want {
		t.Errorf("it goes on with %q, want %q", o.Answer, want)
	}
	c.end()
}

// TestSessionNotKept: what is too much, or holds a secret that cannot be taken out, is not kept, and the job says so.
func TestSessionNotKept(t *testing.T) {
	c := newCarrying(t, true)
	for id, test := range map[job.ID]struct{ script, why string }{
		"large":  {`head -c 17000000 /dev/zero >$TALK/s1`, "it has more than 16 MiB"},
		"secret": {`printf '\000%s' "$MY_TOKEN" >$TALK/s1`, "talk/s1 holds a secret, and is no text"},
		"none":   {`true`, "the program has left no file of it"},
		"pipe":   {`mkfifo $TALK/s1`, "the program has left no file of it"},
		"many":   {`mkdir $TALK/s1; cd $TALK/s1; i=0; while [ $i -le 1000 ]; do : >$i; i=$((i+1)); done`, "it has more than 1000 files"},
	} {
		o := c.play(id, test.script+"\nexit 1", nil)
		if _, ok := o.Artifact(job.ArtifactSession); ok {
			t.Errorf("%s was kept", id)
		}
		if e := c.await(func(e job.Event) bool { return e.Job == id && e.Kind == job.EventWarning }); !strings.Contains(e.Text, "the agent's session is not kept") || !strings.Contains(e.Text, test.why) {
			t.Errorf("%s: the job says %q, want %q in it", id, e.Text, test.why)
		}
	}
	c.end()
}
