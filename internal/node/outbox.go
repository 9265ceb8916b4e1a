package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/agentsched/agentsched/internal/wire"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
)

// Bounds of a record of the spool. A note that is too large even alone is told in short.
const (
	maxRecord    = ipc.MaxFrame - 1<<10 // what stands around it in a frame included
	recordTarget = 64 << 10             // notes that come together share a record up to this
)

// notedOf returns what has to be settled before a note may be forgotten.
func notedOf(x *Note) noted {
	switch x.Method {
	case ipc.NotifyWorkerEvent:
		var e struct {
			Job     job.ID `json:"job"`
			Attempt int    `json:"attempt"`
			Seq     int64  `json:"seq"`
		}
		if json.Unmarshal(x.Params, &e) == nil && e.Seq > 0 {
			return noted{run{e.Job, e.Attempt}, e.Seq}
		}
	case ipc.NotifyJobCompleted:
		var e ipc.JobCompleted
		if json.Unmarshal(x.Params, &e) == nil {
			return noted{run: run{e.Job, e.Attempt}}
		}
	}
	return noted{}
}

// tell has a note written to the spool and told. It waits for room.
func (n *Node) tell(x Note, about noted) { n.outbox <- outNote{note: x, noted: about} }

// write puts notes into the spool, those that have come meanwhile together, until the outbox is closed.
func (n *Node) write() {
	for first := range n.outbox {
		notes, list := []Note{first.note}, []noted{first.noted}
		for size := len(first.note.Params); size < recordTarget; {
			more, ok := n.more()
			if !ok {
				break
			}
			size += len(more.note.Params)
			notes, list = append(notes, more.note), append(list, more.noted)
		}
		if err := n.keep(notes, list); err != nil {
			n.fail(fmt.Errorf("keep what the cores tell: %w", err)) // a node that cannot tell how its runs end is none
		}
	}
}

// more returns a note that waits already.
func (n *Node) more() (outNote, bool) {
	select {
	case x, ok := <-n.outbox:
		return x, ok
	default:
		return outNote{}, false
	}
}

// fullPause is how long is waited before a spool that is full is tried again.
const fullPause = 100 * time.Millisecond

// keep appends notes to the spool, as often as it takes while that is full: the cores wait meanwhile, and
// drop progress. What does not fit into one record is divided. A node that ends waits for a while only.
func (n *Node) keep(notes []Note, list []noted) error {
	var ending time.Time
	for told := false; ; {
		err := n.append(notes, list)
		if !errors.Is(err, wire.ErrFull) {
			return err
		}
		if n.ending.Load() {
			if ending.IsZero() {
				ending = time.Now()
			} else if time.Since(ending) > farewellTime {
				return err
			}
		}
		if !told {
			n.cfg.Log.Error().Err(err).Msg("the spool is full: the cores wait until the scheduler has stored more")
			told = true
		}
		time.Sleep(fullPause)
	}
}

// append makes one record of notes, or several of a few.
func (n *Node) append(notes []Note, list []noted) error {
	payload, err := json.Marshal(notes)
	if err != nil {
		return err
	}
	if len(payload) > maxRecord {
		if len(notes) > 1 {
			half := len(notes) / 2
			if err := n.append(notes[:half], list[:half]); err != nil {
				return err
			}
			return n.append(notes[half:], list[half:])
		}
		if payload, err = json.Marshal([]Note{shorten(&notes[0])}); err != nil {
			return err
		}
	}
	n.ledger.expect(list)
	number, err := n.spool.Append(0, payload)
	if err != nil {
		n.ledger.withdraw(list)
		return err
	}
	n.acknowledge(n.ledger.add(number, list))
	return nil
}

// shorten returns a note without what makes it too large for a frame: the texts.
func shorten(x *Note) Note {
	short := *x
	const why = "it was too large to be sent to the scheduler"
	var err error
	switch x.Method {
	case ipc.NotifyWorkerEvent:
		var e ipc.WorkerEvent
		if err = json.Unmarshal(x.Params, &e); err == nil {
			e.Text = why
			short.Params, err = json.Marshal(e)
		}
	case ipc.NotifyJobCompleted:
		var e ipc.JobCompleted
		if err = json.Unmarshal(x.Params, &e); err == nil {
			o := &e.Outcome
			o.Answer, o.Commands, o.Files, o.Denied = "", nil, nil, nil
			o.Hint = "its answer, commands and files: " + why
			short.Params, err = json.Marshal(e)
		}
	default:
		short.Params = json.RawMessage("{}")
	}
	if err != nil {
		short.Params = json.RawMessage("{}")
	}
	return short
}
