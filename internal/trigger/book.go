package trigger

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/agentsched/agentsched/internal/statedir"
)

// bookVersion of the file's form. A newer one is refused.
const bookVersion = 1

// record is what a trigger must know after a restart.
type record struct {
	// Source is what the rest of the record is about; another one begins anew.
	Source string `json:"source"`
	// Last is the point in time up to which everything is decided; Due are those
	// up to it that are still to be submitted.
	Last time.Time   `json:"last,omitzero"`
	Due  []time.Time `json:"due,omitempty"`

	Output     string     `json:"output,omitempty"`     // hash of a command's last output
	Deliveries []delivery `json:"deliveries,omitempty"` // that a webhook has accepted, the oldest first

	FiredAt time.Time `json:"fired_at,omitzero"` // Firing.At of the last one submitted
	Fired   int       `json:"fired,omitempty"`
	Skipped int       `json:"skipped,omitempty"`

	// Recent are the IDs of the latest firings that were submitted, the newest last.
	// Judged is the one whose failure was the last to isolate the trigger.
	Recent []string `json:"recent,omitempty"`
	Judged string   `json:"judged,omitempty"`
}

// delivery is a request that must not be accepted again.
type delivery struct {
	Key string    `json:"key"`
	At  time.Time `json:"at"`
}

// book keeps the records in a document, which has at any moment either the old or
// the new content.
type book struct {
	mu      sync.Mutex // guards what follows, and is held while the document is written
	kept    *statedir.SoleWriter
	records map[Name]*record
}

// saveTime bounds how long what a trigger did may take to be written.
const saveTime = 10 * time.Second

type bookFile struct {
	Version  int              `json:"version"`
	Triggers map[Name]*record `json:"triggers"`
}

// openBook reads the document TriggersFile; without one the book is empty. One that
// makes no sense is kept beside it, and aside says where.
func openBook(ctx context.Context, docs statedir.Documents, now time.Time) (b *book, aside string, err error) {
	b = &book{kept: statedir.NewSoleWriter(docs, statedir.TriggersFile), records: map[Name]*record{}}
	data, err := b.kept.Read(ctx)
	if err != nil {
		return nil, "", fmt.Errorf("read what triggers did: %w", err)
	}
	if data == nil {
		return b, "", nil
	}
	var file bookFile
	err = json.Unmarshal(data, &file)
	if err == nil && file.Version > bookVersion {
		return nil, "", fmt.Errorf("read what triggers did: %s has version %d, this program knows %d; use the newer program", b.kept.Where(), file.Version, bookVersion)
	}
	if err != nil || file.Version < 1 {
		name := fmt.Sprintf("%s.damaged-%d", statedir.TriggersFile, now.UnixNano())
		if _, err = docs.Write(ctx, name, data, ""); err == nil {
			err = b.save()
		}
		if err != nil {
			return nil, "", fmt.Errorf("set aside what triggers did, which is damaged: %w", err)
		}
		return b, docs.Where(name), nil
	}
	for name, r := range file.Triggers {
		if r != nil {
			b.records[name] = r
		}
	}
	return b, "", nil
}

// get returns a copy of a record, which is empty if there is none for the
// source.
func (b *book) get(name Name, source string) record {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.recordOf(name, source).clone()
}

func (r record) clone() record {
	r.Due, r.Deliveries, r.Recent = slices.Clone(r.Due), slices.Clone(r.Deliveries), slices.Clone(r.Recent)
	return r
}

// update changes a record and writes the book. The change holds in memory also
// when it could not be written.
func (b *book) update(name Name, source string, change func(*record)) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.recordOf(name, source)
	change(&r)
	b.records[name] = &r
	return b.save()
}

func (b *book) recordOf(name Name, source string) record {
	if r := b.records[name]; r != nil && r.Source == source {
		return *r
	}
	return record{Source: source}
}

// keep forgets the triggers that are not in the list.
func (b *book) keep(names []Name) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	changed := false
	for name := range b.records {
		if !slices.Contains(names, name) {
			delete(b.records, name)
			changed = true
		}
	}
	if !changed {
		return nil
	}
	return b.save()
}

// save writes the document: after it, also after a crash, that has the old or the new
// content. It does so whatever has ended meanwhile: the firing has happened. It is called
// under mu.
func (b *book) save() error {
	data, err := json.MarshalIndent(bookFile{Version: bookVersion, Triggers: b.records}, "", "  ")
	if err != nil {
		return fmt.Errorf("write what triggers did: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), saveTime)
	defer cancel()
	if err := b.kept.Write(ctx, append(data, '\n')); err != nil {
		return fmt.Errorf("write what triggers did: %w", err)
	}
	return nil
}
