package claude

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"strings"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/agentcli"
)

// Kind is the worker kind that this adapter drives by default.
const Kind job.WorkerKind = "claude"

// program is the CLI. Its settings may name a helper that prints the key.
var program = agentcli.Program{
	Kind: Kind, Name: "claude", Install: "npm install -g @anthropic-ai/claude-code", Login: loginHint,
	Keys: []string{"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX",
		"CLAUDE_CODE_USE_FOUNDRY"},
	FolderVariable: "CLAUDE_CONFIG_DIR", Folder: ".claude",
	LoginFiles: []string{".credentials.json", "settings.json"},
}

const (
	// maxPrompt bounds the instructions, in bytes. The program itself takes more.
	maxPrompt = 10_000_000
	// maxArgument is the most that Linux passes in one argument, in bytes
	// (MAX_ARG_STRLEN, 32 pages), less room for the zero that ends it.
	maxArgument = 128<<10 - 1
)

// Adapter drives Claude Code.
type Adapter struct{}

// Locate returns the path of the claude program.
func (a Adapter) Locate(s job.WorkerSettings) (string, error) {
	return program.Locate(s)
}

// Version asks the program for its version, e.g. "2.1.197".
func (a Adapter) Version(ctx context.Context, path string) (string, error) {
	return program.Version(ctx, path)
}

// Credentials returns what to do where neither a login nor a key is found.
func (Adapter) Credentials(s job.WorkerSettings, getenv func(name string) string) string {
	todo := program.Credentials(s, getenv)
	if todo == loginHint && runtime.GOOS == "darwin" {
		return "" // the login may be in the keychain, which asks the user
	}
	return todo
}

// Start prepares a run: the private folder and the command line.
func (a Adapter) Start(t *worker.Task) (worker.Session, error) {
	path, err := a.Locate(t.Settings)
	if err != nil {
		return nil, err
	}
	if err := tooLarge(t); err != nil {
		return nil, err
	}
	g, err := grantOf(t)
	if err != nil {
		return nil, err
	}
	if g.agents, err = subagents(t); err != nil {
		return nil, err
	}
	h, err := prepareHome(t, g)
	if err != nil {
		return nil, err
	}
	if t.Moved != "" && agentcli.Plain(t.Session) {
		if err := h.bringSession(t.Session, t.Dir); err != nil {
			return nil, err
		}
	}
	s := newSession(t, h)
	if s.Resume != "" {
		s.has = h.recorded(s.Resume)
	}
	s.Process = worker.Command{
		Path: path, Args: arguments(t, g, h, s.Resume), Env: h.env, Dir: t.Dir,
		Stdin: opening(t.Instructions), KeepStdin: true, Read: h.read, Write: h.login,
	}
	return s, nil
}

// tooLarge reports what the program or the system would not take.
func tooLarge(t *worker.Task) error {
	if n := len(t.Instructions); n > maxPrompt {
		return agentcli.TooLong(program.Name, n, maxPrompt, "bytes")
	}
	if n := len(t.Output); n > maxArgument {
		return &worker.Failure{Class: job.Config,
			Message: fmt.Sprintf("output schema of %d bytes: claude takes at most %d", n, maxArgument),
			Hint:    "use a smaller schema"}
	}
	return nil
}

// prompt returns instructions so that the program takes them for words: what
// starts with a slash would be looked up as one of its own commands.
func prompt(instructions string) string {
	if strings.HasPrefix(strings.TrimSpace(instructions), "/") {
		return "Task:\n" + instructions
	}
	return instructions
}

// arguments builds the command line. Values that users write never stand where
// a leading dash could make them flags.
func arguments(t *worker.Task, g grant, h home, resume string) []string {
	args := agentcli.Arguments(t, "--print", "--input-format=stream-json", "--output-format=stream-json", "--verbose", "--replay-user-messages",
		"--permission-mode=default", "--permission-prompt-tool=stdio", // whatever no rule allows is asked about
		"--setting-sources=user", // the user's are ours; a repository's could grant itself commands and hooks
		"--strict-mcp-config",    // no MCP servers but those given here
		"--add-dir="+t.Dir,       // with CLAUDE_CODE_ADDITIONAL_DIRECTORIES_CLAUDE_MD: reads the repository's CLAUDE.md
		"--tools="+strings.Join(g.tools, ","))
	if len(g.allow)+len(g.ask) > 0 {
		args = append(args, "--settings="+h.permissions)
	}
	if model := agentcli.Model(t); model != "" {
		args = append(args, "--model="+model)
	}
	if h.servers != "" {
		args = append(args, "--mcp-config="+h.servers)
	}
	if h.system != "" {
		args = append(args, "--append-system-prompt-file="+h.system)
	}
	if g.agents != "" {
		args = append(args, "--agents="+g.agents)
	}
	if len(t.Output) > 0 {
		args = append(args, "--json-schema="+string(t.Output))
	}
	if limit := t.Limits.MaxCostUSD; limit > 0 {
		args = append(args, "--max-budget-usd="+strconv.FormatFloat(limit, 'f', -1, 64))
	}
	if resume != "" {
		args = append(args, "--resume="+resume)
		if t.Fork {
			args = append(args, "--fork-session")
		}
	}
	return args
}
