package server_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/internal/isolation"
)

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
		var p *client.Problem
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
	for _, tt := range []struct{ path, body, want string }{
		{"/v1/resume", ``, "EOF"},
		{"/v1/resume", `[]`, "cannot unmarshal"},
		{"/v1/resume", `{"scoop": "global"}`, `unknown field "scoop"`},
		{"/v1/resume", `{"scope": "global"} {"scope": "worker:codex"}`, "more than one"},
		{"/v1/resume", `{"scope": "` + strings.Repeat("x", 1<<20) + `"}`, "too large"},
		{"/v1/cores/restart", `{"core": "all"}`, "cannot unmarshal"},
		{"/v1/cores/restart", `{"core": -1}`, "no core -1"},
		{"/v1/cores/restart", `{"core": 1000}`, "no core 1000"},
	} {
		var p client.Problem
		if d.send("POST", tt.path, tt.body, 400, &p); !strings.Contains(p.Detail, tt.want) {
			t.Errorf("%s %.40s: %q, want %q", tt.path, tt.body, p.Detail, tt.want)
		}
	}
	// The scheduler is not run: there is nothing to restart, and that is said.
	c := client.New(d.socket)
	defer c.Close()
	var p *client.Problem
	if _, err := c.RestartCores(t.Context(), client.RestartCores{Drain: true}); !errors.As(err, &p) || !strings.Contains(p.Detail, "restart cores: ") {
		t.Errorf("restart: %v", err)
	}
}
