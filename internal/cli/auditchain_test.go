package cli

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentsched/agentsched/internal/access"
	"github.com/agentsched/agentsched/internal/audit"
	"github.com/agentsched/agentsched/internal/logging"
	"github.com/agentsched/agentsched/internal/statedir"
)

// anchored is what writes down where an audit log ends, of a scheduler whose documents
// lie in shared, or with nil of one that is alone.
func anchored(t *testing.T, dir *statedir.Dir, shared statedir.Documents, log *bytes.Buffer) *engine {
	t.Helper()
	l, err := audit.Open(dir.Audit(), audit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	logs, err := logging.New(logging.Options{Level: logging.Info, Out: log})
	if err != nil {
		t.Fatal(err)
	}
	state := &owned{dir: dir, docs: dir.Documents(), logs: logs}
	e := &engine{audit: l, state: state}
	if shared != nil {
		state.docs, state.shared = shared, true
		e.chain = audit.NewChain(l, shared, dir.Instance())
	}
	tokens, err := access.OpenTokens(t.Context(), state.docs)
	if err != nil {
		t.Fatal(err)
	}
	e.listeners = &listeners{tokens: tokens}
	return e
}

// TestAnchorsOfHosts: schedulers that share a store write into each other's audit logs
// where those end, and `audit verify --against` holds one against another.
func TestAnchorsOfHosts(t *testing.T) {
	folder := t.TempDir()
	shared := statedir.Files(t.TempDir())
	var dirs []*statedir.Dir
	for _, name := range []string{"a", "b", "alone"} {
		dir, err := statedir.Open(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		dirs = append(dirs, dir)
	}
	logs := make([]bytes.Buffer, len(dirs))
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		var engines []*engine
		for i, dir := range dirs {
			docs := shared
			if dir == dirs[2] {
				docs = nil
			}
			e := anchored(t, dir, docs, &logs[i])
			engines = append(engines, e)
			go func() { done <- e.anchor(ctx) }()
		}
		time.Sleep(5*anchorEvery + time.Second)
		stop()
		for _, e := range engines {
			if err := errors.Join(<-done, e.audit.Close()); err != nil {
				t.Error(err)
			}
			e.state.logs.Close()
		}
	})
	for i := range logs {
		if strings.Contains(logs[i].String(), "error") || strings.Count(logs[i].String(), "the audit log goes up to here") != 6 {
			t.Errorf("log %d: %s", i, logs[i].String())
		}
	}
	if list, _, err := audit.Last(dirs[2].Audit(), 10, nil); err != nil || len(list) != 1 {
		t.Errorf("a scheduler that is alone has recorded %+v, %v", list, err)
	}
	verify := func(args ...string) (code int, out, errs string) {
		var stdout bytes.Buffer
		root := newTestMain(t, &stdout).rootCommand()
		root.SetArgs(append([]string{"audit", "verify"}, args...))
		err := root.Execute()
		if exit, failed := errors.AsType[*exitError](err); failed {
			return exit.code, stdout.String(), err.Error()
		} else if err != nil {
			t.Fatalf("%q: %v", args, err)
		}
		return 0, stdout.String(), ""
	}
	a, b, alone := dirs[0], dirs[1], dirs[2]
	for _, args := range [][]string{
		{"--state", a.Path(), "--against", b.Audit()}, {b.Audit(), "--against", a.Audit()},
		{filepath.Join(b.Audit(), "audit-000001.jsonl"), "--against", filepath.Join(a.Audit(), "audit-000001.jsonl"), "--instance", string(b.Instance())},
	} {
		if code, out, errs := verify(args...); code != 0 || !strings.Contains(out, " refers to ") || !strings.Contains(out, "whole: ") {
			t.Errorf("%q: %d, %s, %s", args, code, out, errs)
		}
	}
	for want, args := range map[string][]string{
		"does not say where the log of instance": {"--state", a.Path(), "--against", alone.Audit()},
		"does not say whose log it is":           {alone.Audit(), "--against", a.Audit()},
		"no such file or directory":              {"--state", a.Path(), "--against", filepath.Join(folder, "none")},
		"the log of instance nobody":             {a.Audit(), "--against", b.Audit(), "--instance", "nobody"},
	} {
		if code, out, errs := verify(args...); code != exitUsage || !strings.Contains(errs, want) {
			t.Errorf("%q: %d, %s, %s; want %q", args, code, out, errs, want)
		}
	}
	// What b says of a's log is not true of another one that claims to be a's.
	if code, out, errs := verify(alone.Audit(), "--against", b.Audit(), "--instance", string(a.Instance())); code != exitFailed || !strings.Contains(out, ": the log had record ") && !strings.Contains(out, "is not in the chain") || !strings.Contains(errs, "1 problem") {
		t.Errorf("of another log: %d, %s, %s", code, out, errs)
	}
}
