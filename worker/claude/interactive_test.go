package claude

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/worker/workertest"
)

// TestInteractiveHidesUsersFiles: a run that leaves a link in its home is not given what it leads to when a person takes its job
// over, which is done outside of its sandbox.
func TestInteractiveHidesUsersFiles(t *testing.T) {
	tk, user := task(t)
	workertest.Confine(t, tk, gateway)
	secret, dir := filepath.Join(user, "secret.json"), filepath.Join(tk.Home, "claude")
	workertest.Write(t, secret, `{"token":"the-users-own"}`)
	tk.Session = "1b4e28ba-2fa1-11d2-883f-0016d3cca427"
	sessions := filepath.Join(dir, "projects", projectOf(tk.Dir))
	if err := os.MkdirAll(sessions, 0o700); err != nil {
		t.Fatal(err)
	}
	workertest.Write(t, filepath.Join(sessions, tk.Session+".jsonl"), `{"type":"user","message":{"role":"user","content":"x"},"sessionId":"`+tk.Session+`"}`+"\n")
	account := filepath.Join(dir, ".claude.json")
	if err := os.Symlink(secret, account); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := (Adapter{}).Interactive(tk); err != nil {
			t.Fatal(err)
		}
	}
	if text := string(workertest.Read(t, account)); strings.Contains(text, "the-users-own") || !strings.Contains(text, "hasCompletedOnboarding") {
		t.Errorf("the run's account: %s", text)
	}
	if text := string(workertest.Read(t, secret)); text != `{"token":"the-users-own"}` {
		t.Errorf("the user's file: %s", text)
	}
}

// TestHomeFollowsNoLink: a run that has put a link in the place of its home does not have the user's own files written over when
// its job goes on.
func TestHomeFollowsNoLink(t *testing.T) {
	tk, user := task(t)
	workertest.Confine(t, tk, gateway)
	settings := filepath.Join(user, ".claude", "settings.json")
	workertest.Write(t, settings, `{"hooks":{}}`)
	if err := os.MkdirAll(tk.Home, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Dir(settings), filepath.Join(tk.Home, "claude")); err != nil {
		t.Fatal(err)
	}
	start(t, tk)
	if text := string(workertest.Read(t, settings)); text != `{"hooks":{}}` {
		t.Errorf("the user's settings: %s", text)
	}
}
