package ipc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// inbound is one frame from the other side, taken apart.
type inbound struct {
	size int // bytes of the frame

	id     json.RawMessage // as it was written; nil for a notification
	method string          // empty for an answer
	params json.RawMessage

	result  json.RawMessage
	failure *Error // of an error answer
	bare    bool   // has neither method, result nor error: a malformed answer if its id is a call's, else refused

	refusal *Error // set: not to be run, only to be answered with this
}

// isAnswer holds for a frame that answers a call of ours.
func (m *inbound) isAnswer() bool { return m.method == "" && m.refusal == nil }

// parse takes a frame of a Decoder apart. A frame that is neither request, notification nor answer has its refusal set.
// Names of members are compared exactly (encoding/json into a struct would fold their case), and unknown members are
// ignored, so that a newer peer can be understood.
func parse(frame []byte) *inbound {
	m := &inbound{size: len(frame)}
	members := splitMembers(bytes.Clone(frame))
	id, hasID := members["id"]
	if hasID && isID(id) {
		m.id = id
	}
	_, hasMethod := members["method"]
	_, hasResult := members["result"]
	_, hasError := members["error"]
	versioned := text(members["jsonrpc"]) == "2.0"
	switch {
	case !hasMethod && (hasResult || hasError):
		return parseAnswer(m, members, versioned && hasResult != hasError)
	case !versioned:
		return m.refuse(CodeInvalidRequest, `jsonrpc must be "2.0"`)
	case hasMethod && hasID && m.id == nil:
		return m.refuse(CodeInvalidRequest, "id must be a number or a string")
	case hasMethod:
		return parseRequest(m, members)
	}
	m.bare = true
	return m.refuse(CodeInvalidRequest, "neither a request, a notification nor an answer")
}

func parseRequest(m *inbound, members map[string]json.RawMessage) *inbound {
	if m.method = text(members["method"]); m.method == "" {
		return m.refuse(CodeInvalidRequest, "method must be a string that is not empty")
	}
	switch params := members["params"]; {
	case len(params) == 0 || string(params) == "null":
	case params[0] == '{' || params[0] == '[':
		m.params = params
	default:
		return m.refuse(CodeInvalidRequest, "params must be an object or an array")
	}
	return m
}

// parseAnswer never refuses: the other side would take an error with the id of an answer for the answer to its own call of
// that id. What is wrong with an answer becomes the error of our call.
func parseAnswer(m *inbound, members map[string]json.RawMessage, wellFormed bool) *inbound {
	m.result = members["result"]
	switch text, isError := members["error"]; {
	case !wellFormed:
		m.failure = errMalformedAnswer
	case isError:
		m.failure = new(Error)
		if err := json.Unmarshal(text, m.failure); err != nil || string(text) == "null" {
			m.failure = errMalformedAnswer
		}
	}
	return m
}

// errMalformedAnswer is the error of a call whose answer has no result or error that can be read.
var errMalformedAnswer = &Error{Code: CodeInternal, Message: "peer sent a malformed answer"}

func (m *inbound) refuse(code int, why string) *inbound {
	m.refusal = &Error{Code: code, Message: why}
	return m
}

// key makes ids comparable: 1 and "1" differ, "a" and "\u0061" do not.
func (m *inbound) key() string {
	if len(m.id) > 0 && m.id[0] == '"' {
		return "s" + text(m.id)
	}
	return "n" + string(m.id)
}

// callID is the number of the call that an answer answers; ours are written as plain integers.
func (m *inbound) callID() (int64, bool) {
	n, err := strconv.ParseInt(string(m.id), 10, 64)
	return n, err == nil
}

// isID holds for a JSON number or string; null is no id here (the specification discourages it).
func isID(raw json.RawMessage) bool {
	return len(raw) > 0 && (raw[0] == '"' || raw[0] == '-' || (raw[0] >= '0' && raw[0] <= '9'))
}

// encodeRequest builds a request, or a notification if id is empty. The params come last, which addDropped relies on.
func encodeRequest(id, method string, params any) ([]byte, error) {
	name, err := marshal(method)
	if err != nil {
		return nil, err
	}
	frame := []byte(`{"jsonrpc":"2.0"`)
	if id != "" {
		frame = append(append(frame, `,"id":`...), id...)
	}
	frame = append(append(frame, `,"method":`...), name...)
	if params != nil {
		text, err := marshal(params)
		switch {
		case err != nil:
			return nil, fmt.Errorf("encode params: %w", err)
		case string(text) == "null":
		case text[0] != '{' && text[0] != '[':
			return nil, fmt.Errorf("encode params: %T is neither an object nor an array", params)
		default:
			frame = append(append(frame, `,"params":`...), text...)
		}
	}
	return append(frame, '}'), nil
}

// encodeAnswer builds the answer to the request with this id; nil means that the request's id could not be read.
func encodeAnswer(id json.RawMessage, result any, failure *Error) ([]byte, error) {
	if id == nil {
		id = json.RawMessage("null")
	}
	what, body := "result", result
	if failure != nil {
		what, body = "error", failure
	}
	text, err := marshal(body)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", what, err)
	}
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"%s":%s}`, id, what, text), nil
}

// marshal is json.Marshal without the escapes that only matter inside HTML.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// droppedMember is the member of a droppable notification's params that says how many before it were dropped.
const droppedMember = "dropped"

// droppedRoom is what addDropped may add: `,"dropped":` and the digits of an int64.
const droppedRoom = 32

// checkDroppable refuses a frame that addDropped could not add its member to.
func checkDroppable(frame []byte) error {
	if !bytes.HasSuffix(frame, []byte("}}")) {
		return errors.New("params must be an object, to say in it what was dropped")
	}
	if !bytes.Contains(frame, []byte(`"`+droppedMember+`"`)) {
		return nil
	}
	var envelope struct {
		Params map[string]json.RawMessage `json:"params"`
	}
	if err := json.Unmarshal(frame, &envelope); err != nil {
		return err
	}
	if _, taken := envelope.Params[droppedMember]; taken {
		return fmt.Errorf("params have a member %q of their own", droppedMember)
	}
	return nil
}

// addDropped adds `"dropped": n` to the params of a frame that passed checkDroppable.
func addDropped(frame []byte, n int) []byte {
	comma := ","
	if bytes.HasSuffix(frame, []byte("{}}")) {
		comma = ""
	}
	return fmt.Appendf(frame[:len(frame)-len("}}"):len(frame)-len("}}")], `%s"%s":%d}}`, comma, droppedMember, n)
}
