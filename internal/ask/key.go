package ask

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"unicode/utf8"
)

// Key names a question of a program's session: by it the question is known again when
// the session is resumed and asks the same once more. It is a SHA-256 in hexadecimal
// over the session, the tool and the arguments, in which the order of the fields and
// blanks between them do not count.
func Key(session, tool string, input json.RawMessage) string {
	sum := sha256.New()
	for _, part := range []string{session, tool, canonical(input)} {
		fmt.Fprintf(sum, "%d:%s,", len(part), part)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// canonical returns JSON with sorted fields and its numbers as they were written; what
// is no JSON as it is.
func canonical(input json.RawMessage) string {
	dec := json.NewDecoder(bytes.NewReader(input))
	dec.UseNumber()
	var value any
	if !utf8.Valid(input) || dec.Decode(&value) != nil {
		return "text " + string(input)
	}
	if _, err := dec.Token(); err != io.EOF { // something follows
		return "text " + string(input)
	}
	out, err := json.Marshal(value)
	if err != nil {
		return "text " + string(input)
	}
	return "json " + string(out)
}
