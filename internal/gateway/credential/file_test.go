package credential

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLoginFileMistakes(t *testing.T) {
	dir := t.TempDir()
	for text, want := range map[string]string{"{": "is not the JSON", `{"OPENAI_API_KEY":"sk-x"}`: "holds no token", `{"tokens":[]}`: "is not the JSON"} {
		path := filepath.Join(dir, "auth.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readTokens(CodexLogin, path); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "sk-x") {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	if _, err := readTokens(ClaudeLogin, filepath.Join(dir, "none")); err == nil || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}
