package opencode

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/agentcli"
)

// home is the private state of a run on disk.
type home struct {
	data  string   // XDG_DATA_HOME
	env   []string // the program's whole environment
	model string   // "provider/model", "" for the user's own
	login []string // the user's login, if a confined run gets that
}

// prepareHome makes the private folders of a run. The user's login is linked,
// not copied: the program writes a refreshed token through the link. Whatever
// else lies in the user's folders is linked as well, unless the run is confined,
// since the variables that name the folders reach the commands that the agent
// runs: git and others find their configuration as ever. HOME and the cache are as
// the task has them.
func prepareHome(t *worker.Task) (home, error) {
	h := home{data: filepath.Join(t.Home, "data")}
	folders := []struct{ variable, usual, private string }{
		{"XDG_DATA_HOME", ".local/share", h.data},
		{"XDG_CONFIG_HOME", ".config", filepath.Join(t.Home, "config")},
		{"XDG_STATE_HOME", ".local/state", filepath.Join(t.Home, "state")},
	}
	h.env = t.Environ
	var users []string
	for _, f := range folders {
		own := folder(t.UserEnv, f.variable, f.usual)
		users = append(users, filepath.Join(own, program.Name))
		if err := agentcli.MakeFolders(t.Home, filepath.Join(f.private, program.Name)); err != nil {
			return h, err
		}
		if !t.Confined {
			if err := mirror(own, f.private); err != nil {
				return h, fmt.Errorf("link the user's %s: %w", own, err)
			}
		}
		h.env = worker.SetEnv(h.env, f.variable, f.private)
	}
	if err := h.shareLogin(t, filepath.Join(users[0], "auth.json")); err != nil {
		return h, fmt.Errorf("reuse the user's opencode login: %w", err)
	}
	agents := filepath.Join(t.Home, "config", program.Name, "AGENTS.md")
	if err := agentcli.Share(t, filepath.Join(users[1], "AGENTS.md"), agents); err != nil {
		return h, fmt.Errorf("reuse the user's AGENTS.md: %w", err)
	}
	config, secrets, err := configure(t, users[1], filepath.Join(h.data, program.Name), &h.model)
	if err != nil {
		return h, err
	}
	file := filepath.Join(t.Scratch, "opencode.json")
	if err := agentcli.WriteJSON(file, config); err != nil {
		return h, err
	}
	if t.Models != nil {
		h.env = worker.SetEnv(worker.UnsetEnv(h.env, t.Settings.KeyEnv), worker.ModelKeyVariable, t.Models.Key)
	} else {
		h.env = agentcli.PassVariables(h.env, t, secrets...)
	}
	if t.Confined {
		h.env = worker.SetEnv(h.env, "OPENCODE_DISABLE_MODELS_FETCH", "1") // no network leads there
	}
	if t.Asked {
		h.env = worker.SetEnv(h.env, "OPENCODE_ENABLE_QUESTION_TOOL", "1") // the agent may ask for words
	}
	h.env = agentcli.SetVariables(h.env,
		"OPENCODE_CONFIG="+file,
		"OPENCODE_DISABLE_PROJECT_CONFIG=1", // a repository's could grant itself commands
		"OPENCODE_DISABLE_AUTOUPDATE=1",
		"OPENCODE_DISABLE_LSP_DOWNLOAD=1",
		"OPENCODE_CLIENT=agentsched")
	return h, nil
}

// folder returns a folder of the user's: a variable names it, or it lies below HOME.
func folder(getenv func(name string) string, variable, usual string) string {
	if dir := getenv(variable); dir != "" {
		return dir
	}
	return filepath.Join(getenv("HOME"), filepath.FromSlash(usual))
}

// shareLogin links the user's login, unless models are asked without it. A confined run
// needs that the sandbox lets it.
func (h *home) shareLogin(t *worker.Task, users string) error {
	own := filepath.Join(h.data, program.Name, "auth.json")
	switch {
	case t.Models != nil:
		return os.RemoveAll(own) // an earlier attempt's, which may be anything
	case t.Settings.BaseURL != "":
		return nil
	}
	if t.Confined && agentcli.Regular(users) {
		h.login = []string{users}
	}
	return agentcli.Link(users, own)
}

// mirror makes private hold a link to each entry of users but the program's own.
func mirror(users, private string) error {
	entries, err := os.ReadDir(users)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() == program.Name {
			continue
		}
		if err := agentcli.Link(filepath.Join(users, e.Name()), filepath.Join(private, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// hasSession reports whether the session was recorded in this home. The
// program keeps sessions in an SQLite file, in which an id stands as it is;
// asking for one that is not there would end the program.
func (h home) hasSession(id string) bool {
	files, err := filepath.Glob(filepath.Join(h.data, program.Name, "*.db*")) // the write-ahead log, too
	if err != nil {
		return false
	}
	for _, file := range files {
		if holds(file, id) {
			return true
		}
	}
	return false
}

// maxSearched bounds how much of a file is searched, in bytes. An agent can make
// one that seems endless.
const maxSearched = 1 << 30

// holds reports whether a text stands in a file.
func holds(path, text string) bool {
	f, err := agentcli.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	buf := make([]byte, 1<<20)
	if len(text) > len(buf)/2 {
		return false
	}
	r := io.LimitReader(f, maxSearched)
	for kept := 0; ; { // of the piece before, in which the text may begin
		n, err := r.Read(buf[kept:])
		n += kept
		if bytes.Contains(buf[:n], []byte(text)) {
			return true
		}
		if err != nil {
			return false
		}
		kept = copy(buf, buf[max(n-len(text)+1, 0):n])
	}
}
