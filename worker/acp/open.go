package acp

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/coder/acp-go-sdk"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/agentcli"
)

// initialized is the answer to initialize, as far as it is used.
type initialized struct {
	ProtocolVersion   int
	AgentInfo         struct{ Name, Version string }
	AuthMethods       []authMethod
	AgentCapabilities struct {
		LoadSession         bool
		SessionCapabilities struct{ Resume, Fork *struct{} }
		McpCapabilities     struct{ HTTP bool }
	}
}

type authMethod struct {
	ID, Name, Description, Type string
	Vars                        []struct {
		Name     string
		Optional bool
	}
}

// opened is the answer to session/new and its kin, as far as it is used.
type opened struct {
	SessionID acp.SessionId
	Modes     *struct {
		CurrentModeID  string
		AvailableModes []struct{ ID string }
	}
	Models *struct {
		CurrentModelID  string
		AvailableModels []struct{ ModelID, Name string }
	}
	ConfigOptions []struct {
		ID, Category, CurrentValue string
		Options                    []option // a group has options of its own
	}
}

type option struct {
	Value, Name string
	Options     []option
}

// initialize returns the first request, which is written before all else.
func (s *session) initialize() []byte {
	title := "agent scheduler"
	s.call(acp.AgentMethodInitialize, acp.InitializeRequest{
		ProtocolVersion: acp.ProtocolVersionNumber,
		ClientInfo:      &acp.Implementation{Name: "agentsched", Title: &title, Version: "1"},
		ClientCapabilities: acp.ClientCapabilities{
			Fs:          acp.FileSystemCapabilities{ReadTextFile: true, WriteTextFile: true},
			Elicitation: &acp.ElicitationCapabilities{Form: &acp.ElicitationFormCapabilities{}},
		},
	}, func(r reply) {
		s.do(worker.SetTimer{Name: "start"})
		if r.err != nil {
			s.fail(failure("initialize", r.err))
			return
		}
		agentcli.Decode(r.result, &s.agent)
		if v := s.agent.ProtocolVersion; v != acp.ProtocolVersionNumber {
			s.fail(worker.Result{Class: job.Config, Message: fmt.Sprintf("the agent speaks version %d of ACP, and the scheduler version %d", v, acp.ProtocolVersionNumber),
				Hint: fmt.Sprintf("install a version of the agent that speaks version %d of ACP", acp.ProtocolVersionNumber)})
			return
		}
		s.say(job.EventLog, strings.TrimSpace("agent "+s.agent.AgentInfo.Name+" "+s.agent.AgentInfo.Version))
		s.open()
	})
	request := s.out[0].(worker.Write).Data
	s.out = nil
	return request
}

// open begins a session, or goes on with the one that the task names. One that is loaded
// comes with its history, which tells what the agent was told before, and is preferred to
// one that is resumed without.
func (s *session) open() {
	session, caps := acp.SessionId(s.task.Session), s.agent.AgentCapabilities
	dir := s.task.Dir
	switch {
	case session == "":
		s.begin()
	case s.task.Fork && caps.SessionCapabilities.Fork != nil:
		s.call(acp.AgentMethodSessionFork, acp.UnstableForkSessionRequest{Cwd: dir, McpServers: unstable(s.servers()), SessionId: session}, s.opened)
	case s.task.Fork:
		s.fail(worker.Result{Class: job.Config, Message: "the agent cannot fork a session", Hint: "begin a new session, or use an agent that has session/fork"})
	case caps.LoadSession:
		s.replaying = true
		s.call(acp.AgentMethodSessionLoad, acp.LoadSessionRequest{Cwd: dir, McpServers: s.servers(), SessionId: session}, s.resumed)
	case caps.SessionCapabilities.Resume != nil:
		s.call(acp.AgentMethodSessionResume, acp.ResumeSessionRequest{Cwd: dir, McpServers: s.servers(), SessionId: session}, s.resumed)
	default:
		s.warn("resume", "the agent cannot resume a session: starting a new one")
		s.begin()
	}
}

func (s *session) begin() {
	s.call(acp.AgentMethodSessionNew, acp.NewSessionRequest{Cwd: s.task.Dir, McpServers: s.servers()}, s.opened)
}

// servers returns the servers of MCP that the agent is to use.
func (s *session) servers() []acp.McpServer {
	t := s.task.Tools
	switch {
	case t == nil:
		return []acp.McpServer{}
	case !s.agent.AgentCapabilities.McpCapabilities.HTTP:
		s.warn("tools", "the agent takes no MCP servers over HTTP: it has not the tools of the scheduler")
		return []acp.McpServer{}
	}
	return []acp.McpServer{{Http: &acp.McpServerHttpInline{
		Type: "http", Name: t.Name, Url: t.URL, Headers: []acp.HttpHeader{{Name: "Authorization", Value: "Bearer " + t.Key}},
	}}}
}

// unstable returns servers as session/fork has them.
func unstable(list []acp.McpServer) (out []acp.UnstableMcpServer) {
	for _, s := range list {
		http := acp.UnstableMcpServerHttp(*s.Http)
		out = append(out, acp.UnstableMcpServer{Http: &http})
	}
	return out
}

func (s *session) resumed(r reply) {
	s.replaying = false
	s.words, s.thought, s.calls = message{}, message{}, map[string]*call{}
	if r.err != nil && r.err.Code != codeAuthRequired {
		s.warn("resume", "session %s no longer exists: starting a new one", s.task.Session)
		clear(s.history)
		s.begin()
		return
	}
	s.started(r, acp.SessionId(s.task.Session))
}

func (s *session) opened(r reply) { s.started(r, "") }

// started takes note of the session and sets it up.
func (s *session) started(r reply, id acp.SessionId) {
	if r.err != nil {
		s.unopened(r.err)
		return
	}
	var o opened
	agentcli.Decode(r.result, &o)
	if id == "" {
		id = o.SessionID
	}
	if id == "" || len(id) > 1000 {
		s.fail(worker.Result{Class: job.Config, Message: "the agent began a session without an id", Hint: byHand})
		return
	}
	s.id = id
	s.emit(job.Event{Kind: job.EventSession, Session: string(id)})
	s.setUp(o)
}

// unopened says why there is no session. An agent that wants to be told to use a key which
// is in its environment is told so.
func (s *session) unopened(err *rpcError) {
	if err.Code != codeAuthRequired {
		s.fail(failure("begin a session", err))
		return
	}
	ready := slices.IndexFunc(s.agent.AuthMethods, func(m authMethod) bool {
		return m.Type == "env_var" && len(m.Vars) > 0 && !slices.ContainsFunc(m.Vars, func(v struct {
			Name     string
			Optional bool
		}) bool {
			return !v.Optional && !slices.ContainsFunc(s.Process.Env, func(kv string) bool {
				return strings.HasPrefix(kv, v.Name+"=")
			})
		})
	})
	if ready < 0 || s.authTried {
		s.fail(s.unauthorized(err))
		return
	}
	s.authTried = true
	s.call(acp.AgentMethodAuthenticate, acp.AuthenticateRequest{MethodId: s.agent.AuthMethods[ready].ID}, func(r reply) {
		if r.err != nil {
			s.fail(s.unauthorized(r.err))
			return
		}
		s.open()
	})
}

// setUp has the session ask for what it does, and use the task's model; then the first
// turn begins.
func (s *session) setUp(o opened) {
	then := func() { s.setModel(o) }
	mode, configID := s.mode(o)
	if mode == "" {
		then()
		return
	}
	s.configure(acp.AgentMethodSessionSetMode, acp.SetSessionModeRequest{SessionId: s.id, ModeId: acp.SessionModeId(mode)},
		configID, mode, "set its mode to "+mode, then)
}

// configure sets a mode or a model, by the option of that id if there is one.
func (s *session) configure(method string, params any, configID, value, what string, then func()) {
	if configID != "" {
		method = acp.AgentMethodSessionSetConfigOption
		params = acp.SetSessionConfigOptionValueId{SessionId: s.id, ConfigId: acp.SessionConfigId(configID), Value: acp.SessionConfigValueId(value)}
	}
	s.call(method, params, func(r reply) {
		if r.err != nil {
			s.fail(failure(what, r.err))
			return
		}
		then()
	})
}

// mode returns the mode to set, and the option to set it by, if it is one; "" if the one
// that is set will do. Modes have no meaning in the protocol, but most agents have one in
// which they ask, and are in another one, in which a model decides what is asked.
//
// In Codex's only "agent-full-access" is without a sandbox, which cannot be nested in that
// of a confined run.
func (s *session) mode(o opened) (mode, configID string) {
	current, has := "", []string{}
	if o.Modes != nil {
		current = o.Modes.CurrentModeID
		for _, m := range o.Modes.AvailableModes {
			has = append(has, m.ID)
		}
	} else {
		for _, c := range o.ConfigOptions {
			if c.Category == "mode" {
				current, configID = c.CurrentValue, c.ID
				for _, v := range flat(c.Options) {
					has = append(has, v.Value)
				}
			}
		}
	}
	_, anyCommand := s.task.CommandPatterns()
	for _, want := range []struct {
		mode string
		fits bool
	}{
		{"agent-full-access", s.task.Confined && anyCommand && s.task.Can(job.CanEdit)},
		{"default", true},
		{"workspace-write", s.task.Can(job.CanEdit)},
		{"read-only", true},
	} {
		if want.fits && slices.Contains(has, want.mode) {
			if want.mode == current {
				return "", ""
			}
			return want.mode, configID
		}
	}
	return "", ""
}

// setModel has the session use the task's model, which is one of those that the agent
// lists, by id or by name.
func (s *session) setModel(o opened) {
	want := agentcli.Model(s.task)
	if want == "" {
		s.first()
		return
	}
	var listed []option
	current, configID := "", ""
	if o.Models != nil {
		current = o.Models.CurrentModelID
		for _, m := range o.Models.AvailableModels {
			listed = append(listed, option{Value: m.ModelID, Name: m.Name})
		}
	} else {
		for _, c := range o.ConfigOptions {
			if c.Category == "model" {
				current, configID, listed = c.CurrentValue, c.ID, flat(c.Options)
			}
		}
	}
	i := slices.IndexFunc(listed, func(m option) bool { return m.Value == want })
	if i < 0 {
		i = slices.IndexFunc(listed, func(m option) bool { return m.Name == want })
	}
	switch {
	case i < 0:
		s.fail(noModel(want, listed))
	case listed[i].Value == current:
		s.first()
	default:
		value := listed[i].Value
		s.configure(acp.AgentMethodSessionSetModel, acp.UnstableSetSessionModelRequest{SessionId: s.id, ModelId: acp.UnstableModelId(value)},
			configID, value, "use the model "+value, s.first)
	}
}

func noModel(want string, listed []option) worker.Result {
	r := worker.Result{Class: job.Config, Message: fmt.Sprintf("the agent does not know the model %q", want)}
	if len(listed) == 0 {
		r.Hint = "leave model out, and name it in the worker's command or in the agent's own configuration: this agent lets no client choose"
		return r
	}
	var known []string
	for _, m := range listed[:min(len(listed), 20)] {
		known = append(known, m.Value)
	}
	r.Hint = "name one of its models: " + strings.Join(known, ", ")
	return r
}

// flat returns the options of groups beside those that are in none.
func flat(options []option) []option {
	var all []option
	for _, o := range options {
		if o.Options != nil {
			all = append(all, o.Options...)
		} else {
			all = append(all, o)
		}
	}
	return all
}

// first begins the first turn.
func (s *session) first() {
	text := s.task.Instructions
	if len(s.task.Output) > 0 {
		text += "\n\nYour last message must be one JSON value, without any other word and without a code fence, " +
			"that satisfies this JSON schema:\n" + string(json.RawMessage(s.task.Output)) + "\n"
	}
	if s.task.SystemPrompt != "" {
		s.prompt(s.task.SystemPrompt, text)
		return
	}
	s.prompt(text)
}
