package server_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/job"
)

// TestPause puts a scope out of use and lifts that.
func TestPause(t *testing.T) {
	d := open(t, 0)
	c := client.New(d.socket)
	defer c.Close()
	i, err := c.Pause(t.Context(), api.Pause{Scope: "worker:codex", Reason: "the bill", For: job.Duration(time.Hour)})
	if err != nil || i.Scope != "worker:codex" || !strings.Contains(i.Message, "the bill") || i.Until.Sub(i.Since) != time.Hour {
		t.Fatalf("paused %+v, %v", i, err)
	}
	if st, err := c.Status(t.Context()); err != nil || len(st.Isolations) != 1 || st.Isolations[0].Scope != i.Scope {
		t.Errorf("status %+v, %v", st, err)
	}
	if i, err := c.Resume(t.Context(), "worker:codex"); err != nil || i.Scope != "worker:codex" {
		t.Errorf("resumed %+v, %v", i, err)
	}
}

// TestResume lifts what is isolated, once, and says what is isolated to who
// names something else.
func TestResume(t *testing.T) {
	d := open(t, 0)
	now := time.Now().UTC()
	for _, scope := range []isolation.Scope{isolation.WorkerScope("codex"), isolation.WorkspaceScope("/w")} {
		d.book.Apply(now, isolation.Isolation{Scope: scope, Cause: isolation.CauseWorkerCrashes, Action: isolation.IsolateKind, Message: "5 crashes", Since: now, Until: now.Add(time.Hour)})
	}
	c := client.New(d.socket)
	defer c.Close()
	st, err := c.Status(t.Context())
	if err != nil || len(st.Isolations) != 2 || st.PID == 0 {
		t.Fatalf("status %+v, %v", st, err)
	}
	i, err := c.Resume(t.Context(), "worker:codex")
	if err != nil || i.Scope != "worker:codex" || i.Message != "5 crashes" || !i.Since.Equal(now) {
		t.Errorf("resumed %+v, %v", i, err)
	}
	for scope, status := range map[string]int{
		"worker:codex": http.StatusConflict, "global": http.StatusConflict, // not isolated
		"everything": http.StatusBadRequest, "": http.StatusBadRequest, "core:x": http.StatusBadRequest,
	} {
		_, err := c.Resume(t.Context(), scope)
		var p *api.Problem
		if !errors.As(err, &p) || p.Status != status || status == http.StatusConflict && !strings.Contains(p.Detail, "workspace:/w") {
			t.Errorf("resume %q: %v, want status %d", scope, err, status)
		}
	}
	if st, err = c.Status(t.Context()); err != nil || len(st.Isolations) != 1 {
		t.Errorf("status %+v, %v", st, err)
	}
}

func TestBadBodies(t *testing.T) {
	d := open(t, 0)
	for _, tt := range []struct {
		path, body     string
		status         int
		location, want string
	}{
		{"/v1/resume", ``, 400, "body", "is empty"},
		{"/v1/resume", `{"scope"`, 400, "body", "ends within"},
		{"/v1/resume", `[]`, 400, "body", "is a JSON array, want a JSON object"},
		{"/v1/resume", `{"scoop": "global"}`, 400, "body", `unknown field "scoop"`},
		{"/v1/resume", `{"scope": 1}`, 400, "body.scope", "is a JSON number, want a text"},
		{"/v1/resume", `{"scope": "global"} {"scope": "worker:codex"}`, 400, "body", "more than one"},
		{"/v1/resume", `{"scope": "` + strings.Repeat("x", 1<<20) + `"}`, 413, "body", "too large"},
		{"/v1/pause", `{"scope": "everything"}`, 400, "body.scope", `"everything"`},
		{"/v1/pause", `{"scope": "global", "for": "soon"}`, 400, "body", `"soon" is not a duration`},
		{"/v1/cores/restart", `{"core": "all"}`, 400, "body.core", "is a JSON string, want a whole number"},
		{"/v1/cores/restart", `{"core": -1}`, 400, "body.core", "no core -1"},
		{"/v1/cores/restart", `{"core": 1000}`, 400, "body.core", "no core 1000"},
	} {
		var p api.Problem
		if d.send("POST", tt.path, tt.body, tt.status, &p); !strings.Contains(p.Detail, tt.want) || len(p.Errors) != 1 || p.Errors[0].Location != tt.location {
			t.Errorf("%s %.40s: %+v, want %q at %s", tt.path, tt.body, p, tt.want, tt.location)
		}
	}
	// The scheduler is not run: there is nothing to restart, and that is said.
	c := client.New(d.socket)
	defer c.Close()
	var p *api.Problem
	if _, err := c.RestartCores(t.Context(), api.RestartCores{Drain: true}); !errors.As(err, &p) || !strings.Contains(p.Detail, "restart cores: ") {
		t.Errorf("restart: %v", err)
	}
}
