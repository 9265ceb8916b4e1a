package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/job"
)

// Roles of those who send no requests.
const (
	RoleAgent  = "agent"
	RoleSystem = "system"
)

// Entry is what is to be recorded.
type Entry struct {
	Time    time.Time // zero: now
	Who     api.AuditWho
	Action  string // e.g. "job.cancel"
	Target  string // what it was done to
	Job     job.ID
	Attempt int
	Event   int64 // the number of the event within the attempt: with Job and Attempt it tells one that comes twice
	Detail  any   // JSON; nil for none
}

// Genesis is the Prev of the first record of all.
var Genesis = strings.Repeat("0", sha256.Size*2)

// Actions of the log itself.
const (
	ActionBegin   = "log.begin"   // the first record of a file
	ActionRemoved = "log.removed" // the oldest file is about to be removed
	ActionTorn    = "log.torn"    // the end of a line, written when a process died, was set aside
	ActionDamaged = "log.damaged" // the log before this record is not as it was written
	ActionGap     = "log.gap"     // records could not be written
)

// Head is the place of a record in the chain: a later look at the log that still
// has it has everything before it.
type Head struct {
	Seq  int64  `json:"seq"`
	Hash string `json:"hash"`
}

// String writes the head as ParseHead reads it, SEQ:HASH.
func (h Head) String() string { return fmt.Sprintf("%d:%s", h.Seq, h.Hash) }

// ParseHead reads a head, e.g. "12:ab34…", with the 64 digits of its hash.
func ParseHead(text string) (Head, error) {
	var h Head
	seq, hash, _ := strings.Cut(text, ":")
	if _, err := fmt.Sscanf(seq, "%d", &h.Seq); err != nil || h.Seq < 0 || fmt.Sprint(h.Seq) != seq || !isHash(hash) {
		return Head{}, fmt.Errorf("%q is no place in the log; want SEQ:HASH, a number and 64 hexadecimal digits", text)
	}
	h.Hash = hash
	return h, nil
}

// seal numbers and chains a record behind head and returns its line, newline
// included, and the new head. Its Prev, Seq and Hash are set.
func seal(r *api.AuditRecord, head Head) ([]byte, Head, error) {
	r.Seq, r.Prev, r.Hash = head.Seq+1, head.Hash, ""
	body, err := json.Marshal(r)
	if err != nil {
		return nil, head, fmt.Errorf("record %s: %w", r.Action, err)
	}
	r.Hash = hashOf(r.Prev, body)
	line := append(body[:len(body)-1], hashField...)
	line = append(append(line, r.Hash...), "\"}\n"...)
	return line, Head{r.Seq, r.Hash}, nil
}

// hashField stands before the hash, which is always the last field.
const hashField = `,"hash":"`

func hashOf(prev string, body []byte) string {
	h := sha256.New()
	h.Write([]byte(prev))
	h.Write(body)
	return hex.EncodeToString(h.Sum(nil))
}

var errNotAsWritten = errors.New("its hash is not that of its text")

// parse reads a line without its newline. The error says that it is not as a log
// has written it; whether it stands where it stood, its place in the chain says.
func parse(line []byte) (api.AuditRecord, error) {
	var r api.AuditRecord
	const tail = len(hashField) + sha256.Size*2 + len(`"}`)
	cut := len(line) - tail
	if cut < 1 || !bytes.HasPrefix(line[cut:], []byte(hashField)) || !bytes.HasSuffix(line, []byte(`"}`)) {
		return r, errors.New("it does not end in a hash")
	}
	body := append(append(make([]byte, 0, cut+1), line[:cut]...), '}')
	if err := json.Unmarshal(body, &r); err != nil {
		return r, fmt.Errorf("it is no record: %w", err)
	}
	if r.Hash = string(line[cut+len(hashField) : len(line)-2]); r.Hash != hashOf(r.Prev, body) {
		return r, errNotAsWritten
	}
	return r, nil
}

func isHash(text string) bool {
	_, err := hex.DecodeString(text)
	return err == nil && len(text) == sha256.Size*2 && text == strings.ToLower(text)
}
