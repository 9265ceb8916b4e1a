package audit

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"github.com/agentsched/agentsched/internal/statedir"
	"github.com/agentsched/agentsched/job"
)

// ActionHeads is the action of a record of where the logs of other schedulers end.
const ActionHeads = "log.heads"

// writerHead is where the log of a scheduler ended at a time by its clock.
type writerHead struct {
	Head
	Time time.Time `json:"time"`
}

// heads is the content of the document statedir.AuditHeads.
type heads struct {
	Version int                           `json:"version"`
	Writers map[job.InstanceID]writerHead `json:"writers"`
}

const headsVersion = 1

// headsDetail is the detail of ActionHeads.
type headsDetail struct {
	Instance job.InstanceID                `json:"instance"` // whose log the record is in
	Heads    map[job.InstanceID]writerHead `json:"heads"`    // of others
}

// forgetAfter is how long the head of a scheduler that is gone stays in the document. The
// other logs have it for good.
const forgetAfter = 30 * 24 * time.Hour

// maxInstance bounds the length of an instance's id, in bytes.
const maxInstance = 100

// Chain joins a log with those of the other schedulers that share a store: each says in the
// document AuditHeads where its log ends, and records in its own where the others' do. Who
// cuts or rewrites one log is found out by the rest. One goroutine at a time uses it.
type Chain struct {
	log      *Log
	docs     statedir.Documents
	instance job.InstanceID
	recorded map[job.InstanceID]Head
}

// NewChain returns the chain of the log of an instance, which is no other's in docs.
func NewChain(l *Log, docs statedir.Documents, instance job.InstanceID) *Chain {
	return &Chain{l, docs, instance, map[job.InstanceID]Head{}}
}

// Join records the heads of other logs that are new since the last time, and then
// publishes that of this one.
func (c *Chain) Join(ctx context.Context) error {
	text, version, err := c.docs.Read(ctx, statedir.AuditHeads)
	if err != nil {
		return fmt.Errorf("read where other audit logs end: %w", err)
	}
	if version == "" {
		text = nil
	}
	known, err := c.parse(text)
	if err != nil {
		return err
	}
	others := map[job.InstanceID]writerHead{}
	for id, h := range known.Writers {
		if id != c.instance && c.recorded[id] != h.Head {
			others[id] = h
		}
	}
	if len(others) > 0 {
		if err := c.log.Record(ctx, system(ActionHeads, headsDetail{c.instance, others})); err != nil {
			return err
		}
		for id, h := range others {
			c.recorded[id] = h.Head
		}
	}
	return c.Publish(ctx)
}

// Publish says in the document where this log ends. It may be called after Close, too.
func (c *Chain) Publish(ctx context.Context) error {
	err := statedir.Change(ctx, c.docs, statedir.AuditHeads, func(old []byte) ([]byte, error) {
		h, err := c.parse(old)
		if err != nil {
			return nil, err
		}
		now := c.log.o.Now().UTC()
		maps.DeleteFunc(h.Writers, func(_ job.InstanceID, w writerHead) bool { return now.Sub(w.Time) > forgetAfter })
		h.Writers[c.instance] = writerHead{c.log.Head(), now}
		text, err := json.MarshalIndent(h, "", "  ")
		return append(text, '\n'), err
	})
	if err != nil {
		return fmt.Errorf("publish where the audit log ends: %w", err)
	}
	return nil
}

// parse reads the document; nil stands for none.
func (c *Chain) parse(text []byte) (heads, error) {
	h := heads{Version: headsVersion}
	if text != nil {
		if err := json.Unmarshal(text, &h); err != nil {
			return h, fmt.Errorf("%s is damaged: %w; remove it, and every scheduler writes its own head again within a minute", c.docs.Where(statedir.AuditHeads), err)
		}
		if h.Version != headsVersion {
			return h, fmt.Errorf("%s has version %d, and this program knows version %d: use the program that wrote it", c.docs.Where(statedir.AuditHeads), h.Version, headsVersion)
		}
	}
	for id, w := range h.Writers {
		if w.Seq < 0 || !isHash(w.Hash) || len(id) > maxInstance {
			return h, fmt.Errorf("%s is damaged: %q of the writer %.100q is no place in a log; remove it, and every scheduler writes its own head again within a minute", c.docs.Where(statedir.AuditHeads), w.Head, id)
		}
	}
	if h.Writers == nil {
		h.Writers = map[job.InstanceID]writerHead{}
	}
	return h, nil
}
