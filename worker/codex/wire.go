package codex

import (
	"bytes"
	"encoding/json"
)

// What is said to `codex app-server` and what it says: JSON-RPC without its member jsonrpc, one
// object a line, as `codex app-server generate-json-schema` describes it.

// Ids of the first two requests. The others count on from there.
const (
	helloID  = 1
	threadID = 2
)

// request is one of ours; without an id it is a notification.
type request struct {
	ID     int64  `json:"id,omitempty"`
	Method string `json:"method"`
	Params any    `json:"params,omitempty"`
}

// reply answers a request of the program's.
type reply struct {
	ID     json.RawMessage `json:"id"`
	Result any             `json:"result,omitempty"`
	Error  *rpcError       `json:"error,omitempty"`
}

type rpcError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

const noSuchMethod = -32601

type helloParams struct {
	Client       clientInfo   `json:"clientInfo"`
	Capabilities capabilities `json:"capabilities"`
}

type clientInfo struct {
	Name    string `json:"name"`
	Title   string `json:"title"`
	Version string `json:"version"`
}

type capabilities struct {
	OptOut []string `json:"optOutNotificationMethods"`
}

// unread are notifications that nobody reads: the pieces of what is told whole later, and
// those that repeat it all each time.
var unread = []string{
	"account/rateLimits/updated", "item/agentMessage/delta", "item/fileChange/outputDelta", "item/fileChange/patchUpdated", "item/plan/delta",
	"item/reasoning/summaryPartAdded", "item/reasoning/summaryTextDelta", "item/reasoning/textDelta", "remoteControl/status/changed",
	"thread/readState/changed", "thread/status/changed", "turn/diff/updated", "turn/plan/updated",
}

// threadParams are those of thread/start, thread/resume and thread/fork.
type threadParams struct {
	ThreadID     string `json:"threadId,omitempty"`
	ExcludeTurns bool   `json:"excludeTurns,omitempty"`
	Dir          string `json:"cwd"`
	Approval     string `json:"approvalPolicy"`
	Sandbox      string `json:"sandbox"`
	Model        string `json:"model,omitempty"`
}

// turnParams are those of turn/start and turn/steer.
type turnParams struct {
	ThreadID     string          `json:"threadId"`
	ExpectedTurn string          `json:"expectedTurnId,omitempty"` // of a steer
	Input        []inputText     `json:"input"`
	ClientID     string          `json:"clientUserMessageId,omitempty"` // Message.ID
	Schema       json.RawMessage `json:"outputSchema,omitempty"`
}

type inputText struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

type interruptParams struct {
	ThreadID string `json:"threadId"`
	TurnID   string `json:"turnId"`
}

// itemsParams ask for a page of what stands in a thread, the latest first.
type itemsParams struct {
	ThreadID string `json:"threadId"`
	Cursor   string `json:"cursor,omitempty"`
	Limit    int    `json:"limit"`
	Sort     string `json:"sortDirection"`
}

// Results of ours.
type (
	decided struct {
		Decision string `json:"decision"`
	}
	permitted struct {
		Permissions json.RawMessage `json:"permissions"`
		Scope       string          `json:"scope"`
	}
	said struct {
		Answers map[string]saidWords `json:"answers"`
	}
	saidWords struct {
		Answers []string `json:"answers"`
	}
)

// frame returns a line. Nothing in it is escaped that JSON does not require.
func frame(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err) // strings and JSON that was decoded
	}
	return b.Bytes()
}

// line is what the program prints: an answer, a request or a notification.
type line struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params params          `json:"params"`
	Result result          `json:"result"`
	Error  *rpcError       `json:"error"`
}

// result has what is read of the program's answers.
type result struct {
	UserAgent string `json:"userAgent"`
	Thread    struct {
		ID string `json:"id"`
	} `json:"thread"`
	Turn turn `json:"turn"`
	Data []struct {
		Item item `json:"item"`
	} `json:"data"`
	NextCursor string `json:"nextCursor"`
}

// params has what is read of the program's notifications and requests.
type params struct {
	ThreadID string `json:"threadId"`
	TurnID   string `json:"turnId"`
	ItemID   string `json:"itemId"`
	Turn     turn   `json:"turn"`
	Item     item   `json:"item"`
	Usage    struct {
		Total *tokens `json:"total"`
		Last  tokens  `json:"last"`
	} `json:"tokenUsage"`
	Error     turnError       `json:"error"`
	WillRetry bool            `json:"willRetry"`
	Message   string          `json:"message"`
	Summary   string          `json:"summary"`
	Details   string          `json:"details"`
	RequestID json.RawMessage `json:"requestId"`

	// Of requests.
	Kind        string          `json:"kind"`
	Command     string          `json:"command"`
	Dir         string          `json:"cwd"`
	Reason      string          `json:"reason"`
	GrantRoot   string          `json:"grantRoot"`
	Permissions json.RawMessage `json:"permissions"`
	Questions   []choice        `json:"questions"`
	Network     *struct {
		Host     string `json:"host"`
		Protocol string `json:"protocol"`
	} `json:"networkApprovalContext"`
}

type turn struct {
	ID     string    `json:"id"`
	Status string    `json:"status"`
	Error  turnError `json:"error"`
}

type turnError struct {
	Message string `json:"message"`
}

type item struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Text     string `json:"text"`
	Status   string `json:"status"`
	ClientID string `json:"clientId"`

	Command   string  `json:"command"`
	ProcessID *string `json:"processId"` // null until it runs
	Output    string  `json:"aggregatedOutput"`
	ExitCode  *int    `json:"exitCode"`

	Changes []change `json:"changes"`

	Server string `json:"server"`
	Tool   string `json:"tool"`
	Query  string `json:"query"`
}

type change struct {
	Path string `json:"path"`
	Kind struct {
		Type string `json:"type"`
		Move string `json:"move_path"`
	} `json:"kind"`
	Diff string `json:"diff"`
}

// tokens counts a thread from its start, cached input included in the input.
type tokens struct {
	Input      int64 `json:"inputTokens"`
	Cached     int64 `json:"cachedInputTokens"`
	CacheWrite int64 `json:"cacheWriteInputTokens"`
	Output     int64 `json:"outputTokens"`
	Reasoning  int64 `json:"reasoningOutputTokens"`
}

// choice is one question of the agent's.
type choice struct {
	ID       string `json:"id"`
	Question string `json:"question"`
	Options  []struct {
		Label       string `json:"label"`
		Description string `json:"description"`
	} `json:"options"`
}
