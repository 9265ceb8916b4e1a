package job

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"unicode"
	"unicode/utf8"
)

// Bounds of a durable step.
const (
	MaxStepID     = 500       // bytes of its id
	MaxStepInputs = 128       // bytes of what names its inputs; longer text is hashed, see StepInputs
	MaxStepResult = 256 << 10 // bytes of its result as compact JSON, so that any fits a frame of the wire
)

// ValidStepID reports why id cannot name a durable step, or nil: it is 1 to
// MaxStepID bytes of printable UTF-8. A step within a step is called
// "outer/inner".
func ValidStepID(id string) error {
	switch {
	case id == "":
		return fmt.Errorf("the id of the step is empty, want 1 to %d bytes of text", MaxStepID)
	case len(id) > MaxStepID:
		return fmt.Errorf("the id of the step has %d bytes, at most %d are allowed: %.60q…", len(id), MaxStepID, id)
	case !utf8.ValidString(id):
		return fmt.Errorf("the id of the step is not UTF-8: %q", id)
	}
	for i, r := range id {
		if !unicode.IsPrint(r) {
			return fmt.Errorf("the id %q of a step has the character %U at byte %d, want printable ones", id, r, i)
		}
	}
	return nil
}

// StepInputs returns what the inputs of a step are compared by and stored as:
// text of at most MaxStepInputs bytes as it is, longer text as "sha256:" and its
// hash in hexadecimal.
func StepInputs(text string) string {
	if len(text) <= MaxStepInputs {
		return text
	}
	return HashStepInputs([]byte(text))
}

// HashStepInputs returns "sha256:" and the hash in hexadecimal.
func HashStepInputs(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}
