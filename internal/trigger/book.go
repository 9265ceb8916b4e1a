package trigger

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
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

// book keeps the records in a file, which has at any moment either the old or
// the new content.
type book struct {
	path string

	mu      sync.Mutex // guards records, and is held while the file is written
	records map[Name]*record
}

type bookFile struct {
	Version  int              `json:"version"`
	Triggers map[Name]*record `json:"triggers"`
}

// openBook reads the file at path; without one the book is empty. A file that
// makes no sense is moved aside, and aside says where to.
func openBook(path string, now time.Time) (b *book, aside string, err error) {
	b = &book{path: path, records: map[Name]*record{}}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return b, "", nil
	}
	if err != nil {
		return nil, "", fmt.Errorf("read what triggers did: %w", err)
	}
	var file bookFile
	err = json.Unmarshal(data, &file)
	if err == nil && file.Version > bookVersion {
		return nil, "", fmt.Errorf("read what triggers did: %s has version %d, this program knows %d; use the newer program", path, file.Version, bookVersion)
	}
	if err != nil || file.Version < 1 {
		aside = fmt.Sprintf("%s.damaged-%d", path, now.UnixNano())
		if err := os.Rename(path, aside); err != nil {
			return nil, "", fmt.Errorf("set aside what triggers did, which is damaged: %w", err)
		}
		return b, aside, nil
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

// update changes a record and writes the file. The change holds in memory also
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

// save writes the file: after it, also after a crash, the file has the old or
// the new content. It is called under mu.
func (b *book) save() error {
	data, err := json.MarshalIndent(bookFile{Version: bookVersion, Triggers: b.records}, "", "  ")
	if err != nil {
		return fmt.Errorf("write what triggers did: %w", err)
	}
	if err := statedir.WriteFile(b.path, append(data, '\n')); err != nil {
		return fmt.Errorf("write what triggers did: %w", err)
	}
	return nil
}
