package durable_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/agentsched/agentsched/queue"
)

// errKilled is what everything returns after the kill.
var errKilled = errors.New("killed")

// memory is a store of records whose process can be killed at a commit.
type memory struct {
	mu      sync.Mutex
	records map[[2]string]queue.Record

	commits   int  // so far
	killAt    int  // the number of the commit at which the process dies; 0: none
	afterward bool // it dies just after that commit, not just before
	dead      bool
}

func newMemory() *memory { return &memory{records: map[[2]string]queue.Record{}} }

// reopen is the next process on the same disk.
func (m *memory) reopen(killAt int, afterward bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dead, m.killAt, m.afterward = false, 0, afterward
	if killAt > 0 {
		m.killAt = m.commits + killAt
	}
}

func (m *memory) Apply(_ context.Context, ops ...queue.Op) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead {
		return errKilled
	}
	m.commits++
	doomed := m.killAt > 0 && m.commits >= m.killAt
	if doomed && !m.afterward {
		m.dead = true
		return errKilled
	}
	next := map[[2]string]queue.Record{}
	for k, r := range m.records {
		next[k] = r
	}
	for _, op := range ops {
		switch op := op.(type) {
		case queue.Write:
			k := [2]string{op.Record.Space, op.Record.Key}
			old, there := next[k]
			switch {
			case there && op.Once && !bytes.Equal(old.Value, op.Record.Value):
				return queue.ErrExists
			case there && op.Once:
			default:
				next[k] = op.Record
			}
		case queue.Erase:
			for k := range next {
				if k[0] == op.Space && k[1] <= op.UpTo {
					delete(next, k)
				}
			}
		case queue.Move:
			if op.Fence != 7 {
				return fmt.Errorf("move: %w", queue.ErrFenced)
			}
		default:
			return fmt.Errorf("op %T is not known here", op)
		}
	}
	m.records = next
	if doomed {
		m.dead = true
		return errKilled
	}
	return nil
}

func (m *memory) Record(_ context.Context, space, key string) (queue.Record, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead {
		return queue.Record{}, errKilled
	}
	r, ok := m.records[[2]string{space, key}]
	if !ok {
		return r, queue.ErrNotFound
	}
	return r, nil
}

func (m *memory) Records(_ context.Context, space, after string, limit int) ([]queue.Record, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []queue.Record
	for k, r := range m.records {
		if k[0] == space && k[1] > after {
			list = append(list, r)
		}
	}
	slices.SortFunc(list, func(a, b queue.Record) int { return strings.Compare(a.Key, b.Key) })
	return list[:min(limit, len(list))], nil
}

func (m *memory) Spaces(context.Context, string) ([]string, error) { return nil, nil }

// has reports whether a step is on disk, whoever is alive.
func (m *memory) has(space, id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.records[[2]string{space, id}]
	return ok
}
