package sqlite

import (
	"context"
	"fmt"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// maxForgotten is how many events and records are deleted in one transaction, and
// thereby how long other writers wait for it.
const maxForgotten = 5000

// Prune implements queue.Keeper. A job with many events or records loses these
// first, in transactions of their own; so does the last job of a batch with those
// of the batch.
//
// An entry whose result another one has (CoalescedWith) stays as long as that
// one, and so does a dead letter that was requeued, and what another goes on from,
// since it is the history of that. What an unfinished one is forked from stays for
// its work and session.
func (s *Store) Prune(ctx context.Context, spec queue.PruneSpec) ([]job.ID, error) {
	if spec.Max < 1 {
		return nil, fmt.Errorf("forget at most %d jobs, want 1 or more", spec.Max)
	}
	var ids []job.ID
	for {
		turn := pruneTurn{max: spec.Max - len(ids), events: maxForgotten}
		err := s.write(ctx, func(t *tx) error {
			turn.tx = t
			return turn.run(spec)
		})
		if err != nil && len(ids) > 0 {
			return ids, nil // those are gone, and must be told; the next call meets the error again
		}
		if err != nil {
			return nil, fmt.Errorf("forget what has ended: %w", err)
		}
		if ids = append(ids, turn.ids...); turn.end || len(ids) == spec.Max {
			return ids, nil
		}
	}
}

// parcelsNamed are those that jobs name, and those that these build on. Few
// specifications have the word in them, so that most are not parsed.
const parcelsNamed = `SELECT DISTINCT digest FROM (
	SELECT spec ->> '$.workspace.parcel.digest' AS digest FROM specs WHERE instr(spec, '"parcel"') > 0
	UNION SELECT spec ->> '$.workspace.parcel.on' FROM specs WHERE instr(spec, '"parcel"') > 0) WHERE digest <> ''`

// Parcels implements queue.Keeper.
func (s *Store) Parcels(ctx context.Context) ([]string, error) {
	return read(ctx, s, "list the parcels of jobs", func(d *db) ([]string, error) { return collect(d, scanText, parcelsNamed) })
}

// pruneTurn is one transaction's part.
type pruneTurn struct {
	*tx
	max, events int // what is left of its bounds
	ids         []job.ID
	end         bool // nothing is left to forget
}

type ended struct {
	seq, batch int64
	id         job.ID
}

func (p *pruneTurn) run(spec queue.PruneSpec) error {
	if err := p.protect(); err != nil {
		return err
	}
	if done, err := p.shedCredits(spec.Before); err != nil || !done {
		return err
	}
	batches := map[int64]bool{}
	for p.max > 0 && p.events > 0 {
		list, err := p.find(spec)
		if err != nil {
			return err
		}
		if len(list) == 0 {
			p.end = true
			break
		}
		for _, e := range list {
			gone, err := p.forget(e)
			if err != nil {
				return fmt.Errorf("job %s: %w", e.id, err)
			}
			if !gone {
				break
			}
			batches[e.batch] = true
		}
	}
	defer p.batches.forget()
	for batch := range batches {
		err := p.exec(`DELETE FROM batches WHERE seq = ? AND (closed_at IS NOT NULL OR NOT private)
			AND NOT EXISTS (SELECT 1 FROM entries WHERE batch = batches.seq)`, batch)
		if err != nil {
			return err
		}
	}
	return nil
}

// Entries that may go now: nothing that stays points to them, and no unfinished
// job of their workflow may ask for them. What they hold back is found in the
// next round.
const (
	selectEnded = `SELECT e.seq, e.batch, e.id FROM entries e `
	isUnbound   = ` AND NOT EXISTS (SELECT 1 FROM entries f WHERE f.coalesced_with <> '' AND f.coalesced_with = e.id)
		AND (e.requeued_as = '' OR NOT EXISTS (SELECT 1 FROM entries f WHERE f.id = e.requeued_as))
		AND (e.continued_as = '' OR NOT EXISTS (SELECT 1 FROM entries f WHERE f.id = e.continued_as))
		AND e.id NOT IN (SELECT forked_from FROM entries INDEXED BY entries_lane WHERE state = 'queued' AND waits_for = '' AND forked_from <> ''
			UNION ALL SELECT forked_from FROM entries INDEXED BY entries_waiting WHERE waits_for <> '' AND forked_from <> ''
			UNION ALL SELECT forked_from FROM entries INDEXED BY entries_fence WHERE state = 'dispatched' AND forked_from <> '')
		AND NOT (e.joined AND EXISTS (SELECT 1 FROM entries u INDEXED BY entries_joined
			WHERE u.joined AND u.state IN ('queued', 'dispatched') AND u.batch = e.batch)) ORDER BY e.completed_at LIMIT ?`
	selectPrune = selectEnded + `INDEXED BY entries_ended WHERE e.completed_at IS NOT NULL AND e.completed_at < ?
		AND NOT (e.exit_kind = 'failed' AND e.requeued_as = '' AND e.dropped_at IS NULL)` + isUnbound
	selectPruneDead = selectEnded + `INDEXED BY entries_dead WHERE e.exit_kind = 'failed' AND e.requeued_as = '' AND e.dropped_at IS NULL
		AND e.completed_at < ?` + isUnbound
)

func (p *pruneTurn) find(spec queue.PruneSpec) (found []ended, err error) {
	scan := func(row scanner) (e ended, err error) {
		err = row.Scan(&e.seq, &e.batch, &e.id)
		return e, err
	}
	if !spec.Before.IsZero() {
		found, err = collect(p.db, scan, selectPrune, spec.Before, p.max)
	}
	if left := p.max - len(found); err == nil && left > 0 && !spec.DeadLettersBefore.IsZero() {
		var dead []ended
		dead, err = collect(p.db, scan, selectPruneDead, spec.DeadLettersBefore, left)
		found = append(found, dead...)
	}
	return found, err
}

// forget deletes an entry, or as much of what hangs on it as one transaction may.
func (p *pruneTurn) forget(e ended) (gone bool, err error) {
	done, err := p.shed(`DELETE FROM events WHERE cursor IN (SELECT cursor FROM events INDEXED BY events_entry WHERE entry = ? ORDER BY cursor LIMIT ?)`, e.seq)
	if err != nil || !done {
		return false, err
	}
	if done, err = p.shedRecords(queue.JobSpace(e.id, "")); err != nil || !done {
		return false, err
	}
	var batch job.BatchID
	last, err := p.row(`SELECT id FROM batches b WHERE seq = ? AND NOT EXISTS (SELECT 1 FROM entries WHERE batch = b.seq AND seq <> ?)`, []any{e.batch, e.seq}, &batch)
	if err != nil {
		return false, err
	}
	if last { // of its batch
		if done, err = p.shedRecords(queue.BatchSpace(batch, "")); err != nil || !done {
			return false, err
		}
	}
	for _, table := range []string{`attempts`, `specs`, `flows`} {
		if err := p.exec(`DELETE FROM `+table+` WHERE entry = ?`, e.seq); err != nil {
			return false, err
		}
	}
	// What it goes on from stays, if that is kept for longer: another may go on from it then.
	if err := p.exec(`UPDATE entries SET continued_as = '' WHERE id = (SELECT continues FROM entries WHERE seq = ?) AND continued_as = ?`, e.seq, string(e.id)); err != nil {
		return false, err
	}
	if err := p.exec(`DELETE FROM entries WHERE seq = ?`, e.seq); err != nil {
		return false, err
	}
	p.ids = append(p.ids, e.id)
	p.max--
	return true, nil
}

// shed deletes rows, as many as the transaction may still; done if it may yet more.
func (p *pruneTurn) shed(query string, args ...any) (done bool, err error) {
	n, err := p.change(query, append(args, p.events)...)
	p.events -= int(n)
	return p.events > 0, err
}

const deleteRecords = `DELETE FROM records WHERE seq IN (SELECT seq FROM records WHERE space >= ? AND space < ? LIMIT ?)`

func (p *pruneTurn) shedRecords(prefix string) (done bool, err error) {
	return p.shed(deleteRecords, prefix, behind(prefix))
}
