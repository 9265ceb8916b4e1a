package ipc

import (
	"bytes"
	"encoding/json"
)

// splitMembers splits a JSON object into its members; of those with the same name the last one counts. The object must be
// valid, as a Decoder's frames are. The result is then that of encoding/json into a map, which would read each byte twice
// more. The values share frame's memory.
func splitMembers(frame []byte) map[string]json.RawMessage {
	out := make(map[string]json.RawMessage, 4)
	at := bytes.IndexByte(frame, '{') + 1
	for {
		at = skipSpace(frame, at)
		switch frame[at] {
		case '}':
			return out
		case ',':
			at = skipSpace(frame, at+1)
		}
		end := stringEnd(frame, at)
		name := text(frame[at:end])
		at = skipSpace(frame, end)  // the colon
		at = skipSpace(frame, at+1) // the value
		end = valueEnd(frame, at)   // of any kind
		out[name] = frame[at:end:end]
		at = end
	}
}

func skipSpace(b []byte, at int) int {
	for b[at] == ' ' || b[at] == '\t' || b[at] == '\r' || b[at] == '\n' {
		at++
	}
	return at
}

// stringEnd returns where the string that begins at at ends.
func stringEnd(b []byte, at int) int {
	for at++; b[at] != '"'; at++ {
		if b[at] == '\\' {
			at++
		}
	}
	return at + 1
}

// valueEnd returns where the value that begins at at ends.
func valueEnd(b []byte, at int) int {
	for depth := 0; ; at++ {
		switch b[at] {
		case '"':
			at = stringEnd(b, at) - 1
		case '{', '[':
			depth++
			continue
		case '}', ']':
			depth--
		case ',', ':', ' ', '\t', '\r', '\n':
			continue
		default:
			for !endsScalar(b[at+1]) {
				at++
			}
		}
		if depth == 0 {
			return at + 1
		}
	}
}

// endsScalar holds for what can stand after a number, true, false or null.
func endsScalar(c byte) bool {
	switch c {
	case ',', ']', '}', ' ', '\t', '\r', '\n':
		return true
	}
	return false
}

// text returns what a JSON string says; "" if it is none.
func text(raw []byte) string {
	if len(raw) >= 2 && raw[0] == '"' && bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1])
	}
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}
