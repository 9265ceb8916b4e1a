package claude

import (
	"os"
	"path/filepath"
	"runtime"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

// Credentials returns what to do where neither a login nor a key is found.
func (Adapter) Credentials(s job.WorkerSettings, getenv func(name string) string) string {
	if todo, own := worker.MissingKey(s, getenv); own {
		return todo
	}
	for _, name := range []string{
		"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX",
		"CLAUDE_CODE_USE_FOUNDRY",
	} {
		if getenv(name) != "" {
			return ""
		}
	}
	if runtime.GOOS == "darwin" {
		return "" // the login is in the keychain, which asks the user
	}
	dir := getenv("CLAUDE_CONFIG_DIR")
	if dir == "" {
		dir = filepath.Join(getenv("HOME"), ".claude")
	}
	// Its settings may name a helper that prints the key.
	for _, file := range []string{".credentials.json", "settings.json"} {
		if _, err := os.Stat(filepath.Join(dir, file)); err == nil {
			return ""
		}
	}
	return loginHint
}
