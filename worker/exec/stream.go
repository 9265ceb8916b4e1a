package exec

import (
	"bytes"
	"encoding/json"
)

// The types of the lines that a worker which streams prints besides; they are
// docs/pipelines.md's.
const (
	typePublish    = "publish"
	typeAck        = "ack"
	typeCheckpoint = "checkpoint"
)

// streams reports whether a line is about the stream.
func streams(line []byte) bool {
	if line = bytes.TrimSpace(line); len(line) == 0 || line[0] != '{' || len(line) > MaxLine {
		return false
	}
	var head struct {
		Type string `json:"type"`
	}
	if json.Unmarshal(line, &head) != nil {
		return false
	}
	switch head.Type {
	case typePublish, typeAck, typeCheckpoint:
		return true
	}
	return false
}
