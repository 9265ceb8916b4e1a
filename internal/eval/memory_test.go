package eval

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// memory is a store of records, with entries and attempts as a test puts them.
type memory struct {
	mu       sync.Mutex
	records  map[string]map[string]queue.Record
	entries  []queue.Entry
	attempts map[job.ID][]job.Attempt
	fail     error // of the next Apply, which then changes nothing
}

func newMemory() *memory {
	return &memory{records: map[string]map[string]queue.Record{}, attempts: map[job.ID][]job.Attempt{}}
}

func (m *memory) put(e *queue.Entry, attempts ...job.Attempt) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := slices.IndexFunc(m.entries, func(x queue.Entry) bool { return x.ID == e.ID })
	if i < 0 {
		i, m.entries = len(m.entries), append(m.entries, queue.Entry{})
	}
	m.entries[i] = *e
	m.attempts[e.ID] = attempts
}

func (m *memory) Apply(_ context.Context, ops ...queue.Op) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.fail; err != nil {
		m.fail = nil
		return err
	}
	next := map[string]map[string]queue.Record{}
	for space, records := range m.records {
		next[space] = maps.Clone(records)
	}
	for _, op := range ops {
		switch op := op.(type) {
		case queue.Write:
			space := next[op.Record.Space]
			if space == nil {
				space = map[string]queue.Record{}
				next[op.Record.Space] = space
			}
			if was, any := space[op.Record.Key]; any && op.Once {
				if !bytes.Equal(was.Value, op.Record.Value) {
					return fmt.Errorf("write %s of %s: %w", op.Record.Key, op.Record.Space, queue.ErrExists)
				}
				continue
			}
			space[op.Record.Key] = op.Record
		case queue.Erase:
			maps.DeleteFunc(next[op.Space], func(key string, _ queue.Record) bool { return key <= op.UpTo })
		default:
			return fmt.Errorf("op %T", op)
		}
	}
	m.records = next
	return nil
}

func (m *memory) List(_ context.Context, f queue.Filter) ([]queue.Entry, int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []queue.Entry
	for _, e := range m.entries {
		if e.Batch == f.Batch && (f.Name == "" || f.Name == e.Spec.Name) {
			list = append(list, e)
		}
	}
	return list, len(list), nil
}

func (m *memory) Attempts(_ context.Context, id job.ID) ([]job.Attempt, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.attempts[id]), nil
}

func (m *memory) Record(_ context.Context, space, key string) (queue.Record, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r, any := m.records[space][key]; any {
		return r, nil
	}
	return queue.Record{}, queue.ErrNotFound
}

func (m *memory) Records(_ context.Context, space, after string, limit int) ([]queue.Record, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := slices.SortedFunc(maps.Values(m.records[space]), func(a, b queue.Record) int { return cmp.Compare(a.Key, b.Key) })
	list = slices.DeleteFunc(list, func(r queue.Record) bool { return r.Key <= after })
	return list[:min(limit, len(list))], nil
}

func (m *memory) Spaces(_ context.Context, prefix string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []string
	for space, records := range m.records {
		if strings.HasPrefix(space, prefix) && len(records) > 0 {
			list = append(list, space)
		}
	}
	slices.Sort(list)
	return list, nil
}

var errKilled = errors.New("killed")
