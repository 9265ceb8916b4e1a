// Package parceltest holds the suite that every parcel.Store must pass.
package parceltest

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/internal/parcel"
	"github.com/agentsched/agentsched/job"
)

// Age makes the last use of a parcel lie so far back.
type Age func(digest string, d time.Duration)

// Run tests the stores that open returns, each of them empty.
func Run(t *testing.T, open func(*testing.T) (parcel.Store, Age)) {
	for name, test := range map[string]func(*suite){"Put": put, "Newest": newest, "Pieces": pieces, "Prune": prune} {
		t.Run(name, func(t *testing.T) {
			s := &suite{T: t, ctx: t.Context()}
			s.store, s.age = open(t)
			test(s)
		})
	}
}

type suite struct {
	*testing.T
	ctx   context.Context
	store parcel.Store
	age   Age
}

// kept is what is known of a parcel that has an initial.
func kept(initial, on, repository string) parcel.Kept {
	k := parcel.Kept{Parcel: job.Parcel{Digest: strings.Repeat(initial, 64), Repository: strings.Repeat(repository, 64), Base: strings.Repeat("0", 40), Commit: strings.Repeat(initial, 40)}}
	if on != "" {
		k.On = strings.Repeat(on, 64)
	}
	return k
}

func (s *suite) put(k parcel.Kept, text string) parcel.Kept {
	s.Helper()
	k.Size = int64(len(text))
	if err := s.store.Put(s.ctx, k, strings.NewReader(text)); err != nil {
		s.Fatal(err)
	}
	return k
}

func (s *suite) unknown(what string, err error) {
	s.Helper()
	if !errors.Is(err, parcel.ErrUnknown) {
		s.Errorf("%s: %v, want ErrUnknown", what, err)
	}
}

func put(s *suite) {
	_, err := s.store.Use(s.ctx, strings.Repeat("a", 64))
	s.unknown("nothing", err)
	a := s.put(kept("a", "", "1"), "text")
	s.put(kept("b", "a", "1"), "")
	again := a
	again.Base = "other"
	s.put(again, "other")
	if got, err := s.store.Use(s.ctx, a.Digest); err != nil || got != a {
		s.Errorf("%+v, %v, want %+v", got, err, a)
	}
	if size, err := s.store.Size(s.ctx); err != nil || size < 4 {
		s.Errorf("all have %d bytes, %v", size, err)
	}
	broken := errors.New("broken")
	if err := s.store.Put(s.ctx, kept("c", "", "1"), failing{broken}); !errors.Is(err, broken) {
		s.Errorf("put: %v", err)
	}
	_, err = s.store.Use(s.ctx, strings.Repeat("c", 64))
	s.unknown("half a parcel", err)
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func newest(s *suite) {
	a, b := s.put(kept("a", "", "1"), "a"), s.put(kept("b", "", "1"), "b")
	on, other := s.put(kept("c", "a", "1"), "c"), s.put(kept("d", "", "2"), "d")
	s.age(a.Digest, time.Hour)
	want := func(repository, commit string, want parcel.Kept) {
		s.Helper()
		if got, err := s.store.Newest(s.ctx, strings.Repeat(repository, 64), commit); err != nil || got != want {
			s.Errorf("%+v, %v, want %+v", got, err, want)
		}
	}
	want("1", "", b)
	want("2", "", other)
	want("1", on.Commit, on)
	s.age(b.Digest, 2*time.Hour)
	want("1", "", a)
	_, err := s.store.Newest(s.ctx, strings.Repeat("3", 64), "")
	s.unknown("a repository", err)
	_, err = s.store.Newest(s.ctx, strings.Repeat("2", 64), on.Commit)
	s.unknown("a commit of another repository", err)
}

func pieces(s *suite) {
	text := strings.Repeat("0123456789", 100_000)
	a := s.put(kept("a", "", "1"), text)
	for _, n := range []int{512 << 10, 300_007} {
		var all bytes.Buffer
		for {
			data, size, err := s.store.ReadAt(s.ctx, a.Digest, int64(all.Len()), n)
			if err != nil || size != int64(len(text)) || len(data) > n {
				s.Fatalf("%d bytes of %d at %d, %v", len(data), size, all.Len(), err)
			}
			if len(data) == 0 {
				break
			}
			all.Write(data)
		}
		if all.String() != text {
			s.Errorf("in pieces of %d bytes it is another", n)
		}
	}
	if data, _, err := s.store.ReadAt(s.ctx, a.Digest, 1<<40, 10); err != nil || len(data) > 0 {
		s.Errorf("behind its end: %q, %v", data, err)
	}
	_, _, err := s.store.ReadAt(s.ctx, strings.Repeat("b", 64), 0, 1)
	s.unknown("a piece", err)
}

func prune(s *suite) {
	named, old, fresh, used := s.put(kept("a", "", "1"), "a"), s.put(kept("b", "", "1"), "b"), s.put(kept("c", "", "1"), "c"), s.put(kept("d", "", "1"), "d")
	for _, k := range []parcel.Kept{named, old, used} {
		s.age(k.Digest, 3*time.Hour)
	}
	if _, err := s.store.Use(s.ctx, used.Digest); err != nil {
		s.Fatal(err)
	}
	removed, err := s.store.Prune(s.ctx, map[string]bool{named.Digest: true}, time.Now().Add(-time.Hour))
	if err != nil || removed != 1 {
		s.Errorf("%d were removed, %v", removed, err)
	}
	for _, k := range []parcel.Kept{named, fresh, used} {
		if _, err := s.store.Use(s.ctx, k.Digest); err != nil {
			s.Error(err)
		}
	}
	_, err = s.store.Use(s.ctx, old.Digest)
	s.unknown("what nobody names", err)
	_, _, err = s.store.ReadAt(s.ctx, old.Digest, 0, 1)
	s.unknown("what nobody names", err)
}
