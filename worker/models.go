package worker

import (
	"fmt"

	"github.com/agentsched/agentsched/job"
)

// ModelAPI is a protocol in which models are asked.
type ModelAPI string

// The protocols.
const (
	OpenAIResponses   ModelAPI = "openai-responses"
	OpenAIChat        ModelAPI = "openai-chat"
	AnthropicMessages ModelAPI = "anthropic"
)

// ModelKeyVariable holds ModelEndpoint.Key where a program takes its key from a
// variable of any name.
const ModelKeyVariable = "AGENTSCHED_MODEL_KEY"

// ModelEndpoint is where a run reaches its models: a gateway, which puts the real key
// or login in the place of Key.
type ModelEndpoint struct {
	URL string // without a path, e.g. "http://127.0.0.1:40123"
	Key string // the run's own: worth nothing to others, or after the run
	API ModelAPI
	// Login is the program whose subscription pays, "codex" or "claude", where the gateway
	// puts in the access token of one; "" where it puts in a key.
	Login string
}

// BaseURL returns the address as a program's settings name it: OpenAI's paths begin
// below "/v1", which is a part of it, Anthropic's at "/v1", which is not.
func (e *ModelEndpoint) BaseURL() string {
	if e.API == AnthropicMessages {
		return e.URL
	}
	return e.URL + "/v1"
}

// Upstream is who answers a worker's models, and with whose key or login: what a
// gateway must know to stand between them. One of KeyEnv, Key, KeyCommand and LoginFile
// says where the credential is; none does if the endpoint takes no key.
type Upstream struct {
	API     ModelAPI
	BaseURL string // as ModelEndpoint.BaseURL, e.g. "https://api.openai.com/v1"
	Model   string // that it is asked for, if the settings or the user's configuration name one; "" is the program's own default

	KeyEnv     string // the variable that holds the key, e.g. "OPENAI_API_KEY"
	Key        string // the key itself, read from where the user's configuration keeps it
	KeyCommand string // for `sh -c`, prints the key
	LoginFile  string // holds the login, in the format of the program that Login names

	// Login is the program whose subscription it is, "codex" or "claude", where the
	// credential is an access token. That of KeyEnv cannot be refreshed.
	Login string
	// Bearer says that Anthropic's API gets the key as "Authorization: Bearer" and not as
	// "x-api-key". OpenAI's APIs always do.
	Bearer bool
	// Headers are sent with every request besides. They may hold secrets.
	Headers map[string]string
}

// UnservedError says that the models of a worker cannot be reached through a gateway. A
// run that needs them has to see the user's login itself.
type UnservedError struct {
	Kind job.WorkerKind
	Why  string // e.g. "Claude Code is set to use Amazon Bedrock, which signs requests itself"
}

// Error says why, and what can be done.
func (e *UnservedError) Error() string {
	return fmt.Sprintf("worker %s: the gateway cannot serve its models: %s; set base_url and key_env in the worker's settings, or let its runs see the login: sandbox: {login: visible}", e.Kind, e.Why)
}

// SettingsUpstream is Upstream where the settings name an endpoint: it is that, with
// the key that goes with it. The second result is false if they name none.
func SettingsUpstream(s job.WorkerSettings, api ModelAPI) (u Upstream, own bool) {
	return Upstream{API: api, BaseURL: s.BaseURL, KeyEnv: s.KeyEnv, Model: s.Model}, s.BaseURL != ""
}
