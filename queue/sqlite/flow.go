package sqlite

import (
	"encoding/json"
	"fmt"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// flow is what an entry has of a workflow beside Held, as the table flows keeps
// it; the fields are those of queue.Entry. An entry that stands alone has no row.
type flow struct {
	Resolved   *job.Resolved   `json:"resolved,omitempty"`
	Skipped    string          `json:"skipped,omitempty"`
	Result     json.RawMessage `json:"result,omitempty"`
	Approval   *queue.Approval `json:"approval,omitempty"`
	Rejections int             `json:"rejections,omitempty"`
}

// of gives an entry what is stored of it.
func (f *flow) of(e *queue.Entry) {
	e.Resolved, e.Skipped, e.Result, e.Approval, e.Rejections = f.Resolved, f.Skipped, f.Result, f.Approval, f.Rejections
}

func (e *standing) flow() (f flow, err error) {
	var text string
	if _, err = e.tx.row(`SELECT flow FROM flows WHERE entry = ?`, []any{e.seq}, &text); err == nil {
		err = decode(text, &f)
	}
	if err != nil {
		return f, fmt.Errorf("job %s: %w", e.id, err)
	}
	return f, nil
}

func (e *standing) setFlow(f flow) error {
	text, err := encode(&f)
	if err != nil {
		return fmt.Errorf("job %s: %w", e.id, err)
	}
	return e.tx.exec(`INSERT INTO flows (entry, flow) VALUES (?, ?) ON CONFLICT (entry) DO UPDATE SET flow = excluded.flow`, e.seq, text)
}
