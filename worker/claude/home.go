package claude

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"

	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/agentcli"
)

// home is the private state of a run on disk.
type home struct {
	dir         string   // CLAUDE_CONFIG_DIR
	env         []string // the program's whole environment
	permissions string   // settings file with the permission rules
	system      string   // file with the system prompt, "" if there is none
	servers     string   // file with the servers of MCP, "" if there is none
	read, login []string // the user's credentials and login, if a confined run gets those
}

// prepareHome makes the private CLAUDE_CONFIG_DIR of a run. The login is the
// user's own, in its place: a copy would leave the user with a refresh token
// that was used up, and so would a link, since the program replaces the file.
// HOME stays the user's, so that git, ssh and the like work in commands.
func prepareHome(t *worker.Task, g grant) (home, error) {
	h := home{dir: filepath.Join(t.Home, "claude"), permissions: filepath.Join(t.Scratch, "permissions.json")}
	if err := agentcli.MakeFolders(t.Home, h.dir); err != nil {
		return h, err
	}
	users := usersFiles(t.UserEnv)
	own := t.Settings.BaseURL == "" && t.Models == nil
	if own { // another endpoint must not see the user's login
		if err := takeAccount(users.account, filepath.Join(h.dir, ".claude.json")); err != nil {
			return h, err
		}
	}
	if t.Confined && own {
		if login := filepath.Join(users.folder, ".credentials.json"); agentcli.Regular(login) {
			h.login = []string{login}
		}
		if file := t.UserEnv("GOOGLE_APPLICATION_CREDENTIALS"); filepath.IsAbs(file) && t.UserEnv("CLAUDE_CODE_USE_VERTEX") != "" {
			h.read = []string{file}
		}
	}
	if err := agentcli.Share(t, filepath.Join(users.folder, "CLAUDE.md"), filepath.Join(h.dir, "CLAUDE.md")); err != nil {
		return h, fmt.Errorf("reuse the user's CLAUDE.md: %w", err)
	}
	if err := takeSettings(t, filepath.Join(users.folder, "settings.json"), filepath.Join(h.dir, "settings.json")); err != nil {
		return h, err
	}
	rules := map[string]any{"allow": append([]string{}, g.allow...)}
	if len(g.ask) > 0 {
		rules["ask"] = g.ask
	}
	if err := agentcli.WriteJSON(h.permissions, map[string]any{"permissions": rules}); err != nil {
		return h, err
	}
	if t.Tools != nil {
		h.servers = filepath.Join(t.Scratch, "servers.json")
		if err := agentcli.WriteJSON(h.servers, servers(t.Tools)); err != nil {
			return h, err
		}
	}
	var err error
	h.system, err = agentcli.SystemPrompt(t, "system-prompt.txt")
	h.env = environment(t, h.dir, users.folder)
	if t.Tools != nil {
		h.env = worker.SetEnv(h.env, "MCP_TOOL_TIMEOUT", toolTimeout)
	}
	return h, err
}

// toolTimeout is for how long the program waits for a tool, in ms.
const toolTimeout = "4000000"

// servers returns the program's configuration of a server of MCP, whose key is in a variable.
func servers(s *worker.ToolServer) map[string]any {
	return map[string]any{"mcpServers": map[string]any{s.Name: map[string]any{
		"type": "http", "url": s.URL, "headers": map[string]string{"Authorization": "Bearer ${" + worker.ToolKeyVariable + "}"},
	}}}
}

// users are the user's own files.
type users struct {
	folder  string // with settings.json, .credentials.json and CLAUDE.md
	account string // .claude.json
}

func usersFiles(getenv func(name string) string) users {
	if dir := getenv("CLAUDE_CONFIG_DIR"); dir != "" {
		return users{folder: dir, account: filepath.Join(dir, ".claude.json")}
	}
	home := getenv("HOME")
	return users{folder: filepath.Join(home, ".claude"), account: filepath.Join(home, ".claude.json")}
}

// endpointVariables are the variables by which the program finds its models, beside
// those that name the models.
var endpointVariables = []string{
	"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "ANTHROPIC_CUSTOM_HEADERS", "CLAUDE_CODE_OAUTH_TOKEN",
	"CLAUDE_CODE_USE_BEDROCK", "ANTHROPIC_BEDROCK_BASE_URL", "AWS_BEARER_TOKEN_BEDROCK", "AWS_REGION", "AWS_PROFILE",
	"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN",
	"CLAUDE_CODE_USE_VERTEX", "ANTHROPIC_VERTEX_PROJECT_ID", "ANTHROPIC_VERTEX_BASE_URL", "CLOUD_ML_REGION", "GOOGLE_APPLICATION_CREDENTIALS",
	"CLAUDE_CODE_USE_FOUNDRY", "ANTHROPIC_FOUNDRY_API_KEY", "ANTHROPIC_FOUNDRY_RESOURCE", "ANTHROPIC_FOUNDRY_BASE_URL",
}

// modelVariables name models.
var modelVariables = []string{"ANTHROPIC_MODEL", "ANTHROPIC_DEFAULT_OPUS_MODEL", "ANTHROPIC_DEFAULT_SONNET_MODEL", "ANTHROPIC_DEFAULT_HAIKU_MODEL"}

// diverting are those of endpointVariables that a gateway takes the place of. Those of
// a cloud's account may be meant for the job's own commands.
var diverting = slices.DeleteFunc(slices.Clone(endpointVariables), func(name string) bool {
	return strings.HasPrefix(name, "AWS_") && name != "AWS_BEARER_TOKEN_BEDROCK" || name == "GOOGLE_APPLICATION_CREDENTIALS" || name == "CLOUD_ML_REGION"
})

// environment returns the program's, from that of the task. users is the folder of the
// user's login.
func environment(t *worker.Task, dir, users string) []string {
	env := t.Environ
	switch url := t.Settings.BaseURL; {
	case t.Models != nil:
		key := "ANTHROPIC_API_KEY"
		if t.Models.Login != "" {
			key = "ANTHROPIC_AUTH_TOKEN" // a subscription's token comes as this one does
		}
		env = worker.UnsetEnv(env, slices.Concat(diverting, []string{t.Settings.KeyEnv})...)
		env = agentcli.SetVariables(agentcli.PassVariables(env, t, modelVariables...), "ANTHROPIC_BASE_URL="+t.Models.BaseURL(), key+"="+t.Models.Key)
	case url != "":
		env = worker.SetEnv(env, "ANTHROPIC_BASE_URL", url)
		if key := t.Settings.KeyEnv; key != "" {
			env = worker.SetEnv(env, "ANTHROPIC_API_KEY", t.Getenv(key))
		}
	default:
		// Where the login lies; "" is the program's default for HOME.
		login := t.Getenv("CLAUDE_CONFIG_DIR")
		if t.Confined {
			login = users
		}
		env = worker.SetEnv(env, "CLAUDE_SECURESTORAGE_CONFIG_DIR", login)
		env = agentcli.PassVariables(agentcli.PassVariables(env, t, endpointVariables...), t, modelVariables...)
	}
	if tmp := t.Getenv("TMPDIR"); t.Confined && tmp != "" {
		env = worker.SetEnv(env, "CLAUDE_CODE_TMPDIR", tmp) // else below /tmp
	}
	return agentcli.SetVariables(env,
		"CLAUDE_CONFIG_DIR="+dir,
		// Retries are the scheduler's: the announcement of the first ends the run
		// (see Verdict). With 0 there is none, and it alone says when to come back.
		"CLAUDE_CODE_MAX_RETRIES=1",
		"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
		"DISABLE_AUTOUPDATER=1",
		"CLAUDE_CODE_DISABLE_BACKGROUND_TASKS=1", // a run is over when its last command is
		"CLAUDE_CODE_ADDITIONAL_DIRECTORIES_CLAUDE_MD=1",
	)
}

// takeSettings writes from the user's settings what says which models are used and,
// if the user's own endpoint is, how they are reached. What could allow more than the
// job does stays behind: permissions, hooks, plugins, MCP servers.
func takeSettings(t *worker.Task, from, to string) error {
	users, err := agentcli.ReadJSON(from, "claude settings", nil)
	if err != nil {
		return err
	}
	settings := map[string]any{"includeCoAuthoredBy": false}
	kept := settingsVariables(users)
	switch {
	case t.Models != nil:
		agentcli.TakeOver(settings, users, "model")
		maps.DeleteFunc(kept, func(name, _ string) bool { return !slices.Contains(modelVariables, name) })
	case t.Settings.BaseURL != "":
		clear(kept)
	default:
		agentcli.TakeOver(settings, users, "model", "apiKeyHelper", "awsAuthRefresh", "awsCredentialExport", "forceLoginMethod", "forceLoginOrgUUID")
		maps.DeleteFunc(kept, func(name, _ string) bool { return !endpoint(name) })
	}
	if len(kept) > 0 {
		settings["env"] = kept
	}
	return agentcli.WriteJSON(to, settings)
}

// settingsVariables returns the variables that the user's settings set for the program.
func settingsVariables(users map[string]json.RawMessage) map[string]string {
	vars := map[string]string{}
	if err := json.Unmarshal(users["env"], &vars); err != nil {
		return map[string]string{} // there are none, or none that the program would take
	}
	return vars
}

// endpoint reports whether a variable says which models are used and how they are reached.
func endpoint(name string) bool {
	return slices.Contains(endpointVariables, name) || slices.Contains(modelVariables, name) || strings.HasPrefix(name, "VERTEX_REGION_")
}

// takeAccount writes from the user's account file what a login needs, unless
// an earlier attempt of the job has left its own.
func takeAccount(from, to string) error {
	if _, err := os.Lstat(to); err == nil {
		return nil
	}
	users, err := agentcli.ReadJSON(from, "claude account", nil)
	var broken *worker.Failure
	if users == nil && err == nil || errors.As(err, &broken) {
		return nil // of a broken one the program would start anew, too
	}
	if err != nil {
		return err
	}
	own := map[string]any{"hasCompletedOnboarding": true}
	agentcli.TakeOver(own, users, "oauthAccount", "primaryApiKey", "userID")
	return agentcli.WriteJSON(to, own)
}

// bringSession puts what is recorded of a session where the program looks for one of a run in dir: it comes from
// another host, where the workspace had another path.
func (h home) bringSession(id, dir string) error {
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	projects := filepath.Join(h.dir, "projects")
	there := filepath.Join(projects, projectOf(dir))
	found, err := filepath.Glob(filepath.Join(projects, "*", id+".jsonl"))
	if err != nil || len(found) != 1 || filepath.Dir(found[0]) == there {
		return nil // it is there, or nowhere; or the program itself made more of it
	}
	if err := agentcli.MakeFolders(h.dir, there); err != nil {
		return err
	}
	for _, name := range []string{id, id + ".jsonl"} { // the one by which it is found comes last
		err := os.Rename(filepath.Join(filepath.Dir(found[0]), name), filepath.Join(there, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("bring session %s to this host: %w", id, err)
		}
	}
	return nil
}

// maxProject is how long the name of a project's folder is before it is cut, in UTF-16 units.
const maxProject = 200

// projectOf returns the name of the folder in which the program records the sessions of runs in dir.
func projectOf(dir string) string {
	units := utf16.Encode([]rune(dir))
	name, hash := make([]byte, len(units)), int32(0)
	for i, u := range units {
		hash = hash<<5 - hash + int32(u)
		if name[i] = '-'; u < 0x80 && strings.IndexByte(alphanumeric, byte(u)) >= 0 {
			name[i] = byte(u)
		}
	}
	if len(name) <= maxProject {
		return string(name)
	}
	return string(name[:maxProject]) + "-" + strings.TrimPrefix(strconv.FormatInt(int64(hash), 36), "-")
}

const alphanumeric = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

// maxRecorded is how much is read of a session's record, from its end, in bytes.
const maxRecorded = 32 << 20

// recorded returns the uuids of the messages that a session has: those that began a
// turn are lines of their own, those that came while one ran are attachments.
func (h home) recorded(id string) map[string]bool {
	has := map[string]bool{}
	found, err := filepath.Glob(filepath.Join(h.dir, "projects", "*", id+".jsonl"))
	if err != nil || len(found) == 0 {
		return has
	}
	f, err := agentcli.Open(found[0])
	if err != nil {
		return has // it does not know them: they are said again
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > maxRecorded {
		f.Seek(info.Size()-maxRecorded, io.SeekStart)
	}
	lines := bufio.NewScanner(io.LimitReader(f, maxRecorded))
	lines.Buffer(nil, maxRecorded+1)
	for lines.Scan() {
		var l struct {
			Type       string `json:"type"`
			UUID       string `json:"uuid"`
			Attachment struct {
				UUID string `json:"source_uuid"`
			} `json:"attachment"`
		}
		if !bytes.Contains(lines.Bytes(), []byte(`"uuid":"`)) || !agentcli.Decode(lines.Bytes(), &l) {
			continue
		}
		for _, uuid := range []string{l.UUID, l.Attachment.UUID} {
			if ours(uuid) {
				has[uuid] = true
			}
		}
	}
	return has
}

// hasSession reports whether the session was recorded in this home.
func (h home) hasSession(id string) bool {
	found, err := filepath.Glob(filepath.Join(h.dir, "projects", "*", id+".jsonl"))
	return err == nil && len(found) > 0
}
