package sqlite

import (
	"context"
	"fmt"
	"strings"

	"github.com/agentsched/agentsched/queue"
)

// maxFindings is how many findings of each kind an error names.
const maxFindings = 5

// invariants are what holds of every store, beyond what SQLite itself looks
// after. Each query returns what breaks it, as text.
func invariants() []struct{ what, query string } {
	return []struct{ what, query string }{
		{"more than one job of a key is dispatched",
			`SELECT tenant || '/' || key FROM entries WHERE state = 'dispatched' AND key <> '' GROUP BY tenant, key HAVING count(*) > 1`},
		{"an unknown state", `SELECT id || ' is ' || state FROM entries WHERE state NOT IN ('queued', 'dispatched', 'completed', 'expired', 'cancelled')`},
		{"a claim's number was not given out", `SELECT id FROM entries WHERE fence > (SELECT last FROM fence)`},
		{"an end without its time, or the other way round",
			`SELECT id FROM entries WHERE (state IN ('completed', 'expired', 'cancelled')) <> (completed_at IS NOT NULL)`},
		{"a job does not know its latest attempt",
			`SELECT id FROM entries WHERE attempts <> coalesce((SELECT max(number) FROM attempts WHERE entry = entries.seq), 0)`},
		{"an attempt goes on of a job that is not dispatched",
			`SELECT e.id || '/' || a.number FROM attempts a JOIN entries e ON e.seq = a.entry WHERE a.ended_at IS NULL AND (e.state <> 'dispatched' OR a.number <> e.attempts)`},
		{"a job waits for one that has ended or is not there",
			`SELECT id FROM entries e WHERE waits_for <> '' AND NOT EXISTS
				(SELECT 1 FROM entries w WHERE w.id = e.waits_for AND w.tenant = e.tenant AND w.key = e.key AND w.state IN ('queued', 'dispatched'))`},
		{"a job has the result of one that is not there",
			`SELECT id FROM entries e WHERE coalesced_with <> '' AND NOT EXISTS (SELECT 1 FROM entries l WHERE l.id = e.coalesced_with)`},
		{"a job is held that is not queued, or for what nobody knows",
			`SELECT id || ' is held for ' || held FROM entries WHERE held <> '' AND (state <> 'queued' OR held NOT IN ('needs', 'parts', 'approval', 'team', 'words', 'person'))`},
		{"a job is held and lies where it can be claimed, or the other way round", `SELECT id FROM entries WHERE (held <> '') <> (pool < -1)`},
		{"a job waits for a person who was not asked",
			`SELECT id FROM entries e WHERE held = 'approval' AND NOT (
				EXISTS (SELECT 1 FROM attempts WHERE entry = e.seq AND number = e.attempts AND state = 'waiting_approval' AND outcome <> '')
				AND EXISTS (SELECT 1 FROM flows WHERE entry = e.seq AND json_valid(flow) AND flow ->> '$.approval.attempt' = e.attempts))`},
		{"an attempt waits for a person and its job does not",
			`SELECT e.id || '/' || a.number FROM attempts a JOIN entries e ON e.seq = a.entry
				WHERE a.state = 'waiting_approval' AND a.ended_at IS NOT NULL AND (e.held <> 'approval' OR a.number <> e.attempts)`},
		{"what a job has of its workflow cannot be read", `SELECT entry FROM flows WHERE NOT json_valid(flow) OR entry NOT IN (SELECT seq FROM entries)`},
		{"a batch's workflow cannot be read", `SELECT id FROM batches WHERE workflow <> '' AND NOT json_valid(workflow)`},
		{"a record cannot be read", `SELECT space || ' ' || key FROM records WHERE NOT json_valid(value)`},
		{"a specification cannot be read", `SELECT id FROM entries e WHERE NOT EXISTS (SELECT 1 FROM specs WHERE entry = e.seq AND json_valid(spec))`},
		{"an outcome cannot be read", `SELECT entry || '/' || number FROM attempts WHERE outcome <> '' AND NOT json_valid(outcome)`},
		{"attempts are missing in the ledger",
			`SELECT 'there are ' || a.n || ', of which it knows ' || l.n FROM (SELECT count(*) AS n FROM attempts WHERE ended_at IS NOT NULL) a,
				(SELECT coalesce(sum(attempts), 0) AS n FROM ledger) l WHERE l.n < a.n`},
	}
}

// Check implements queue.Keeper. It reads the whole store as it is at one
// moment, and lets others write meanwhile.
func (s *Store) Check(ctx context.Context) error {
	if err := s.reads.do(ctx, (*db).check); err != nil {
		return fmt.Errorf("check store %s: %w", s.path, err)
	}
	return nil
}

func (d *db) check() error {
	var wrong []string
	find := func(what, query string) error {
		found, err := collect(d, scanText, query)
		if err != nil || len(found) == 0 || found[0] == "ok" { // says integrity_check, if there is nothing
			return err
		}
		first := found[:min(len(found), maxFindings)]
		text := strings.Join(strings.Fields(strings.Join(first, ", ")), " ")
		if more := len(found) - len(first); more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
		wrong = append(wrong, what+text)
		return nil
	}
	if err := find("", fmt.Sprintf(`PRAGMA integrity_check(%d)`, maxFindings)); err != nil {
		return err
	}
	if len(wrong) == 0 { // else what follows would only say the same again
		if err := find("a row points nowhere: ", `SELECT "table" || ' ' || coalesce(rowid, '') FROM pragma_foreign_key_check`); err != nil {
			return err
		}
		for _, i := range invariants() {
			if err := find(i.what+": ", i.query); err != nil {
				return err
			}
		}
	}
	if len(wrong) > 0 {
		return fmt.Errorf("%w: %s", queue.ErrCorrupt, strings.Join(wrong, "; "))
	}
	return nil
}

// quickCheck looks whether a file's pages are whole, without what a rule of
// ours says about them.
func (d *db) quickCheck() error {
	found, err := collect(d, scanText, `PRAGMA quick_check(1)`)
	if err == nil && (len(found) == 0 || found[0] != "ok") {
		err = fmt.Errorf("%w: %s", queue.ErrCorrupt, strings.Join(strings.Fields(strings.Join(found, " ")), " "))
	}
	return err
}
