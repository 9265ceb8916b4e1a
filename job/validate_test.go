package job

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

// validSpec returns a specification without a fault.
func validSpec() Spec {
	return Spec{
		Name: "fix-login", Tenant: DefaultTenant, Type: WorkerTask, Worker: "codex", Instructions: "fix it",
		Workspace: Workspace{Path: "/project", Isolation: Worktree, Base: "main"},
	}
}

// TestValidate breaks one rule after the other; each is named by the path of its field.
func TestValidate(t *testing.T) {
	early, late := time.Unix(1, 0), time.Unix(2, 0)
	for name, c := range map[string]struct {
		change func(*Spec)
		want   []string // fields, in order
	}{
		"valid":            {func(*Spec) {}, nil},
		"valid everything": {everything, nil},
		"valid tool":       {func(s *Spec) { s.Type, s.Worker = Tool, "shell" }, nil},
		"valid event":      {func(s *Spec) { s.Type, s.Worker, s.Payload = PluginEvent, "shell", []byte(`{"n":1}`) }, nil},
		"valid maintenance": {func(s *Spec) {
			s.Type, s.Worker, s.Workspace.Isolation, s.Workspace.Base = Maintenance, "shell", Direct, ""
		}, nil},
		"valid model call": {func(s *Spec) { s.Type, s.Workspace = LLM, Workspace{Isolation: NoWorkspace} }, nil},
		"valid external": {func(s *Spec) {
			*s = Spec{Name: "e", Tenant: "t", Type: External, Workspace: Workspace{Isolation: NoWorkspace}, Payload: []byte(`{"n":1}`), Trigger: ByCron, Agent: "pid:7"}
		}, nil},
		"external with a worker":  {func(s *Spec) { s.Type = External }, []string{"worker", "workspace.isolation"}},
		"payload of another type": {func(s *Spec) { s.Payload = []byte(`1`) }, []string{"payload"}},
		"payload is no JSON": {func(s *Spec) {
			*s = Spec{Name: "e", Type: External, Workspace: Workspace{Isolation: NoWorkspace}, Payload: []byte(`{`)}
		}, []string{"payload"}},
		"bad agent and domain":     {func(s *Spec) { s.Agent, s.Domain = "a b", "-" }, []string{"agent", "domain"}},
		"unknown trigger":          {func(s *Spec) { s.Trigger = "whim" }, []string{"trigger"}},
		"bad expectation":          {func(s *Spec) { s.Expect = Expectation{-1, math.NaN()} }, []string{"expect.tokens", "expect.cost_usd"}},
		"no name":                  {func(s *Spec) { s.Name = "" }, []string{"id"}},
		"bad name":                 {func(s *Spec) { s.Name = "a b" }, []string{"id"}},
		"no type":                  {func(s *Spec) { s.Type = "" }, []string{"type"}},
		"unknown type":             {func(s *Spec) { s.Type = "worker_task" }, []string{"type"}},
		"maintenance by an agent":  {func(s *Spec) { s.Type = Maintenance }, []string{"worker", "workspace.isolation"}},
		"an event for an agent":    {func(s *Spec) { s.Type = PluginEvent }, []string{"worker"}},
		"tool on an agent":         {func(s *Spec) { s.Type = Tool }, []string{"worker"}},
		"model call with a folder": {func(s *Spec) { s.Type = LLM }, []string{"workspace.isolation"}},
		"model call with tools": {func(s *Spec) {
			*s = Spec{Name: "a", Type: LLM, Worker: "x", Instructions: "y", Workspace: Workspace{Isolation: NoWorkspace}, Capabilities: []Capability{CanRead}}
		}, []string{"capabilities"}},
		"no worker":        {func(s *Spec) { s.Worker = "" }, []string{"worker"}},
		"valid repository": {func(s *Spec) { s.Workspace.Path, s.Workspace.Repo = "", "https://example.com/a.git" }, nil},
		"valid parcel": {func(s *Spec) {
			s.Workspace = Workspace{Isolation: Worktree, Parcel: Parcel{Digest: strings.Repeat("a", 64)}}
		}, nil},
		"repository and path":      {func(s *Spec) { s.Workspace.Repo = "https://example.com/a.git" }, []string{"workspace"}},
		"copy of a repository":     {func(s *Spec) { s.Workspace = Workspace{Isolation: Copy, Repo: "/a"} }, []string{"workspace.isolation"}},
		"repository without use":   {func(s *Spec) { s.Workspace = Workspace{Isolation: NoWorkspace, Repo: "/a"} }, []string{"workspace.isolation"}},
		"repository with password": {func(s *Spec) { s.Workspace = Workspace{Isolation: Worktree, Repo: "https://a:" + "b@example.com/a"} }, []string{"workspace.repo"}},
		"parcel with a base": {func(s *Spec) {
			s.Workspace = Workspace{Isolation: Worktree, Base: "main", Parcel: Parcel{Digest: "x", Folder: "a"}}
		}, []string{"workspace.base", "workspace.parcel.digest", "workspace.parcel.folder"}},
		"relative path":            {func(s *Spec) { s.Workspace.Path = "project" }, []string{"workspace.path"}},
		"no path":                  {func(s *Spec) { s.Workspace.Path = "" }, []string{"workspace.path"}},
		"path without a use":       {func(s *Spec) { s.Workspace = Workspace{Path: "/x", Isolation: NoWorkspace} }, []string{"workspace.path"}},
		"unknown isolation":        {func(s *Spec) { s.Workspace = Workspace{Path: "/x", Isolation: "vm"} }, []string{"workspace.isolation"}},
		"base without a worktree":  {func(s *Spec) { s.Workspace.Isolation = Direct }, []string{"workspace.base"}},
		"base that is an option":   {func(s *Spec) { s.Workspace.Base = "--force" }, []string{"workspace.base"}},
		"no instructions":          {func(s *Spec) { s.Instructions = " \n\t" }, []string{"instructions"}},
		"unknown capability":       {func(s *Spec) { s.Capabilities = []Capability{CanRead, "fly"} }, []string{"capabilities[1]"}},
		"empty command":            {func(s *Spec) { s.AllowCommands = []string{"ls", " "} }, []string{"allow_commands[1]"}},
		"variable with a value":    {func(s *Spec) { s.Env = []string{"A", "B=1", ""} }, []string{"env[1]", "env[2]"}},
		"runnable at the deadline": {func(s *Spec) { s.RunnableAt, s.Deadline = &late, &late }, []string{"runnable_at"}},
		"runnable after it":        {func(s *Spec) { s.RunnableAt, s.Deadline = &late, &early }, []string{"runnable_at"}},
		"runnable before it":       {func(s *Spec) { s.RunnableAt, s.Deadline = &early, &late }, nil},
		"unknown class":            {func(s *Spec) { s.Class = "vip" }, []string{"class"}},
		"unknown policy":           {func(s *Spec) { s.OnDuplicate = "drop" }, []string{"on_duplicate"}},
		"key with blanks around":   {func(s *Spec) { s.Key = " k" }, []string{"key"}},
		"key of two lines":         {func(s *Spec) { s.Key = "a\nb" }, []string{"key"}},
		"key that is no text":      {func(s *Spec) { s.Key = "a\xff" }, []string{"key"}},
		"long key":                 {func(s *Spec) { s.Key = strings.Repeat("k", 257) }, []string{"key"}},
		"longest key":              {func(s *Spec) { s.Key = strings.Repeat("k", 256) }, nil},
		"long turn":                {func(s *Spec) { s.OnDuplicate, s.Turn = Reject, strings.Repeat("t", 257) }, []string{"turn"}},
		"turn beside a key":        {func(s *Spec) { s.Key, s.OnDuplicate, s.Turn = "k", Reject, "7" }, []string{"turn"}},
		"turn without a use":       {func(s *Spec) { s.Turn = "7" }, []string{"turn"}},
		"turn with a policy":       {func(s *Spec) { s.OnDuplicate, s.Turn = LatestWins, "7" }, nil},
		"negative limits": {func(s *Spec) {
			s.Limits = Limits{MaxAttempts: -1, MaxCostUSD: -1, MaxTokens: -1, MaxSteps: -1, RetryBudget: RetryBudget{CostUSD: -1}}
		}, []string{"limits.max_attempts", "limits.max_cost_usd", "limits.max_tokens", "limits.max_steps", "limits.retry_budget.cost_usd"}},
		"several at once, in order":  {func(s *Spec) { *s = Spec{Env: []string{" "}} }, []string{"type", "workspace.isolation", "id", "worker", "instructions", "env[0]"}},
		"a base that cannot be used": {func(s *Spec) { s.Workspace = Workspace{Path: "/x", Isolation: Copy, Base: "-b"} }, []string{"workspace.base", "workspace.base"}},
	} {
		s := validSpec()
		c.change(&s)
		var got []string
		for _, err := range s.Validate() {
			got = append(got, err.Field)
			if err.Message == "" || err.Error() != err.Field+": "+err.Message {
				t.Errorf("%s: error %q with message %q", name, err.Error(), err.Message)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: faults at %v, want %v", name, got, c.want)
		}
	}
}

func everything(s *Spec) {
	s.Capabilities, s.AllowCommands, s.Env = Capabilities(), []string{"go test *"}, []string{"GOFLAGS"}
	s.Limits = Limits{Timeout: 1, MaxAttempts: 1, MaxCostUSD: 1, MaxTokens: 1, MaxSteps: 1, MaxCommandTime: 1, RetryBudget: RetryBudget{1, 1}}
	s.Fallback, s.Class, s.Key, s.OnDuplicate = []Choice{{Worker: "claude"}}, Interactive, "deploy website", Serialize
}

func TestChoices(t *testing.T) {
	s := validSpec()
	s.Model, s.Fallback = "small", []Choice{{"claude", "large"}, {"opencode", ""}}
	if got, want := s.Choices(), []Choice{{"codex", "small"}, {"claude", "large"}, {"opencode", ""}}; !slices.Equal(got, want) {
		t.Errorf("choices %v, want %v", got, want)
	}
	if s.Can(CanEdit) {
		t.Error("the job can do what it was not granted")
	}
	s.Capabilities = []Capability{CanRead, CanEdit}
	if !s.Can(CanEdit) || s.Can(CanUseNetwork) {
		t.Error("the job cannot do what it was granted, or more")
	}
}
