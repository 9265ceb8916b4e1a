package codex

import (
	"os"
	"path/filepath"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

// Credentials returns what to do where neither a login nor a key is found.
func (Adapter) Credentials(s job.WorkerSettings, getenv func(name string) string) string {
	if todo, own := worker.MissingKey(s, getenv); own {
		return todo
	}
	for _, name := range []string{
		"CODEX_API_KEY", "OPENAI_API_KEY",
	} {
		if getenv(name) != "" {
			return ""
		}
	}
	dir := getenv("CODEX_HOME")
	if dir == "" {
		dir = filepath.Join(getenv("HOME"), ".codex")
	}
	// Its own configuration may name another provider with a key of its own.
	for _, file := range []string{"auth.json", "config.toml"} {
		if _, err := os.Stat(filepath.Join(dir, file)); err == nil {
			return ""
		}
	}
	return loginHint
}
