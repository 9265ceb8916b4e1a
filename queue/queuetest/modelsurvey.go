package queuetest

import (
	"time"

	"pgregory.net/rapid"

	"github.com/agentsched/agentsched/queue"
)

// survey compares what the two stores say of themselves as a whole.
func (m *machine) survey(r *rapid.T) {
	census, err := m.real.Census(m.ctx)
	if err != nil {
		r.Fatalf("census: %v", err)
	}
	wantSame(r, "census", census, m.oracle.census())
	since := m.now.Add(-time.Duration(rapid.IntRange(-2, 40).Draw(r, "surveyed")) * time.Second)
	until := since.Add(time.Duration(rapid.IntRange(-1, 40).Draw(r, "for")) * time.Second)
	step := time.Duration(rapid.IntRange(1, 20).Draw(r, "step")) * time.Second
	steps, err := m.real.Throughput(m.ctx, since, until, step)
	if err != nil {
		r.Fatalf("throughput: %v", err)
	}
	wantSame(r, "throughput", steps, m.oracle.throughput(since, until, step))
	limit := rapid.IntRange(1, 6).Draw(r, "runs")
	runs, err := m.real.Runs(m.ctx, since, until, limit)
	if err != nil {
		r.Fatalf("runs: %v", err)
	}
	wantSame(r, "runs", runs, m.oracle.runs(since, until, limit))
}

// comparePages reads all pages of a filter and compares them with the oracle's list.
func (m *machine) comparePages(r *rapid.T, f queue.Filter) {
	var all []queue.Entry
	cursor, total := "", 0
	for first := true; first || cursor != ""; first = false {
		page, next, n, err := m.real.Page(m.ctx, f, cursor)
		if err != nil {
			r.Fatalf("page: %v", err)
		}
		if first {
			total = n
		} else if n != -1 || len(page) == 0 {
			r.Fatalf("page of %d entries behind %s, total %d", len(page), cursor, n)
		}
		if f.Limit > 0 && (len(page) > f.Limit || next != "" && len(page) < f.Limit) {
			r.Fatalf("page of %d, limit %d, next %q", len(page), f.Limit, next)
		}
		all, cursor = append(all, page...), next
	}
	m.translate(all)
	f.Limit = 1 << 20
	want, wantTotal := m.oracle.list(f)
	wantSame(r, "pages of "+show(f), all, want)
	if total != wantTotal {
		r.Fatalf("total of pages of %s: got %d, want %d", show(f), total, wantTotal)
	}
}
