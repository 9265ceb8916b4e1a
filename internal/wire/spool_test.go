package wire

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

// small are settings with which segments have 8 KiB.
var small = SpoolConfig{MaxBytes: 64 << 10, MaxRecord: 4 << 10}

func openSpool(t *testing.T, dir string, cfg SpoolConfig) *Spool {
	t.Helper()
	s, err := OpenSpool(dir, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeSpool(t, s) })
	return s
}

func closeSpool(t *testing.T, s *Spool) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// payload is what the tests' record of a number holds.
func payload(n uint64) []byte {
	return bytes.Repeat(binary.BigEndian.AppendUint64(nil, n), int(n%200)+1)
}

func fill(t *testing.T, s *Spool, to uint64) {
	t.Helper()
	for n := s.Last() + 1; n <= to; n++ {
		got, err := s.Append(byte(n), payload(n))
		if err != nil || got != n {
			t.Fatalf("record %d: %d, %v", n, got, err)
		}
	}
}

// check reads all records from a number to the last one.
func check(t *testing.T, s *Spool, from uint64) {
	t.Helper()
	r := s.Since(from - 1)
	defer r.Close()
	for n := from; n <= s.Last(); n++ {
		rec, err := r.Next(context.Background())
		if err != nil || rec.Number != n || rec.Kind != byte(n) || !bytes.Equal(rec.Payload, payload(n)) {
			t.Fatalf("record %d is %d of kind %d with %d bytes, %v", n, rec.Number, rec.Kind, len(rec.Payload), err)
		}
	}
}

// TestSpool: records come back in order after the spool was opened again, acknowledged segments go, and numbers go on.
func TestSpool(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "spool")
	s := openSpool(t, dir, small)
	fill(t, s, 60)
	check(t, s, 1)
	if err := s.Ack(40); err != nil {
		t.Fatal(err)
	}
	before := s.Used()
	if _, err := OpenSpool(dir, small); !errors.Is(err, ErrSpoolHeld) || !strings.Contains(err.Error(), dir) {
		t.Errorf("opened twice: %v", err)
	}
	closeSpool(t, s)
	if _, err := s.Append(1, nil); !errors.Is(err, ErrSpoolClosed) {
		t.Errorf("append after the end: %v", err)
	}

	s = openSpool(t, dir, small)
	if s.Last() != 60 || s.Acked() != 40 || s.Used() != before {
		t.Fatalf("last %d, acked %d, used %d; want 60, 40, %d", s.Last(), s.Acked(), s.Used(), before)
	}
	check(t, s, 41)
	r := s.Since(0) // what was acknowledged is passed over
	defer r.Close()
	if rec, err := r.Next(context.Background()); err != nil || rec.Number != 41 {
		t.Errorf("since 0: %d, %v", rec.Number, err)
	}
	if err := s.Ack(61); err == nil || !strings.Contains(err.Error(), "the last record is 60") {
		t.Errorf("ack of what is not there: %v", err)
	}
	if err := errors.Join(s.Ack(60), s.Ack(3), s.Ack(60)); err != nil {
		t.Fatal(err)
	}
	if s.Used() > 1<<10 || s.Acked() != 60 { // an eighth of a segment may stay
		t.Errorf("acknowledged: %d bytes are used, acked %d", s.Used(), s.Acked())
	}
	closeSpool(t, s)
	s = openSpool(t, dir, small)
	fill(t, s, 70)
	check(t, s, 61)

	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", e.Name(), info.Mode(), err)
		}
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder: %v, %v", info.Mode(), err)
	}
}

// TestSpoolFull: the bound holds, and room comes with what is acknowledged.
func TestSpoolFull(t *testing.T) {
	s := openSpool(t, t.TempDir(), small)
	for round := range 3 {
		var err error
		for err == nil {
			_, err = s.Append(1, make([]byte, 1000))
		}
		if used := s.Used(); !errors.Is(err, ErrFull) || used > small.MaxBytes || used < small.MaxBytes-1025 {
			t.Fatalf("round %d: %v with %d bytes", round, err, used)
		}
		if err := s.Ack(s.Last() - 20); err != nil {
			t.Fatal(err)
		}
		if used := s.Used(); used > 20*1025+8<<10 {
			t.Errorf("%d bytes are used for 20 records", used)
		}
	}
	if _, err := s.Append(1, make([]byte, 4<<10+1)); err == nil || errors.Is(err, ErrFull) || !strings.Contains(err.Error(), "at most 4096") {
		t.Errorf("a record too long: %v", err)
	}
	if _, err := OpenSpool(t.TempDir(), SpoolConfig{MaxBytes: 100}); err == nil {
		t.Error("a spool for no record is opened")
	}
}

// TestSpoolWaits: a reader gets what is appended later, and its wait ends with its context and with the spool.
func TestSpoolWaits(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s, err := OpenSpool(dir, small)
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan error)
		r := s.Since(0)
		defer r.Close()
		next := func(ctx context.Context, want uint64) {
			rec, err := r.Next(ctx)
			if err == nil && rec.Number != want {
				err = fmt.Errorf("record %d; want %d", rec.Number, want)
			}
			got <- err
		}
		for n := uint64(1); n <= 3; n++ {
			go next(context.Background(), n)
			synctest.Wait()
			fill(t, s, n)
			if err := <-got; err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancelCause(context.Background())
		go next(ctx, 4)
		synctest.Wait()
		cancel(errors.New("enough"))
		if err := <-got; err == nil || !strings.Contains(err.Error(), "enough") {
			t.Error(err)
		}
		go next(context.Background(), 4)
		synctest.Wait()
		closeSpool(t, s)
		if err := <-got; !errors.Is(err, ErrSpoolClosed) {
			t.Error(err)
		}
	})
}

// TestSpoolTogether: appends, acknowledgements and readers at the same time.
func TestSpoolTogether(t *testing.T) {
	s := openSpool(t, t.TempDir(), SpoolConfig{MaxBytes: 1 << 20, MaxRecord: 4 << 10})
	const writers, each = 8, 100
	var wg sync.WaitGroup
	seen := make([][]byte, writers*each+1) // by number
	var mu sync.Mutex
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				text := fmt.Appendf(nil, "%d/%d", w, i)
				n, err := s.Append(byte(w), text)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if seen[n] != nil {
					t.Errorf("number %d was given twice", n)
				}
				seen[n] = text
				mu.Unlock()
			}
		})
	}
	read := make([][]byte, writers*each+1)
	wg.Go(func() {
		r := s.Since(0)
		defer r.Close()
		for n := uint64(1); n <= writers*each; n++ {
			rec, err := r.Next(context.Background())
			if err == nil && rec.Number == n {
				read[n] = rec.Payload
				err = s.Ack(n)
			}
			if err != nil || rec.Number != n {
				t.Errorf("record %d is %d, %v", n, rec.Number, err)
				return
			}
		}
	})
	wg.Wait()
	next := map[byte]int{}
	for n := 1; n <= writers*each; n++ {
		w := read[n][0]
		if want := fmt.Sprintf("%c/%d", w, next[w]); string(read[n]) != want || !bytes.Equal(seen[n], read[n]) {
			t.Fatalf("record %d is %s, appended as %s; want %s", n, read[n], seen[n], want)
		}
		next[w]++
	}
}

// TestTornTail: whatever a write leaves that a crash has stopped is cut off, and nothing before it.
func TestTornTail(t *testing.T) {
	dir := t.TempDir()
	s := openSpool(t, dir, small)
	fill(t, s, 9)
	whole := s.Used()
	fill(t, s, 10)
	closeSpool(t, s)
	name := s.path(1)
	full, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	tail := full[whole:]
	torn := map[string][]byte{"nothing": {}, "zeros": make([]byte, len(tail)), "zeros behind": append(tail[:len(tail)/2:len(tail)/2], make([]byte, 4096)...), "garbage": bytes.Repeat([]byte{0xa5}, 3000)}
	for n := range tail {
		torn[fmt.Sprint(n)] = tail[:n]
	}
	// Two records of one write, of which only the second has reached the disk.
	second := appendRecord(appendRecord(nil, Record{Number: 10, Payload: payload(10)}, 9), Record{Number: 11, Payload: payload(11)}, 9)
	clear(second[:recordHead+len(payload(10))])
	torn["first page lost"] = second
	for what, end := range torn {
		// The state is that of before: the write had not ended.
		if err := errors.Join(os.WriteFile(name, append(full[:whole:whole], end...), 0o600), os.Remove(filepath.Join(dir, stateName))); err != nil {
			t.Fatal(err)
		}
		s, err := OpenSpool(dir, small)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if s.Last() != 9 || s.Used() != whole {
			t.Errorf("%s: the last record is %d, %d bytes", what, s.Last(), s.Used())
		}
		check(t, s, 1)
		fill(t, s, 10)
		closeSpool(t, s)
		if s, err = OpenSpool(dir, small); err != nil || s.Last() != 10 {
			t.Fatalf("%s: what was cut off is there again: %v, %v", what, s, err)
		}
		fill(t, s, 12)
		check(t, s, 1)
		closeSpool(t, s)
	}
}

// TestDamage: what no crash explains is said with its place, and nothing is changed.
func TestDamage(t *testing.T) {
	dir := t.TempDir()
	s := openSpool(t, dir, small)
	fill(t, s, 60)
	if len(s.segments) < 3 {
		t.Fatalf("%d segments", len(s.segments))
	}
	segments := s.segments
	closeSpool(t, s)
	original := map[string][]byte{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if original[e.Name()], err = os.ReadFile(filepath.Join(dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	last, state := segmentName(segments[len(segments)-1].first), filepath.Join(dir, stateName)
	write := func(name string, b []byte) error { return os.WriteFile(filepath.Join(dir, name), b, 0o600) }
	flip := func(name string, at int) func() error {
		return func() error {
			b := bytes.Clone(original[name])
			b[at] ^= 0x10
			return write(name, b)
		}
	}
	for what, c := range map[string]struct {
		do   func() error
		file string
		at   int64
		why  string
	}{
		"a bit in the middle":      {flip(segmentName(1), recordHead+8+recordHead+3), segmentName(1), recordHead + 16, "checksum"},
		"a length in the middle":   {flip(segmentName(1), recordHead+16), segmentName(1), recordHead + 16, "length"},
		"a bit of the last file":   {flip(last, recordHead), last, 0, "checksum"},
		"the same, without state":  {func() error { return errors.Join(flip(last, recordHead)(), os.Remove(state)) }, last, 0, "checksum"},
		"a bit of the last record": {flip(last, len(original[last])-1), last, -1, "checksum"},
		"the last record is gone":  {func() error { return write(last, original[last][:segments[len(segments)-1].size-30]) }, last, -1, "bytes"},
		"a segment is short":       {func() error { return write(segmentName(1), original[segmentName(1)][:30]) }, segmentName(1), -1, ""},
		"a segment is gone":        {func() error { return os.Remove(s.path(segments[1].first)) }, segmentName(segments[2].first), 0, "the one before ends with"},
		"all segments are gone": {func() (err error) {
			for _, seg := range segments {
				err = errors.Join(err, os.Remove(s.path(seg.first)))
			}
			return err
		}, "", 0, "there is no segment; records up to 60 were there"},
	} {
		t.Run(what, func(t *testing.T) {
			for name, b := range original {
				if err := write(name, b); err != nil {
					t.Fatal(err)
				}
			}
			if err := c.do(); err != nil {
				t.Fatal(err)
			}
			before, err := os.ReadFile(filepath.Join(dir, last))
			if err != nil && what != "all segments are gone" {
				t.Fatal(err)
			}
			s, err := OpenSpool(dir, small)
			var damage *DamageError
			if !errors.As(err, &damage) || s != nil {
				t.Fatalf("opened: %v", err)
			}
			if damage.File != filepath.Join(dir, c.file) || c.at >= 0 && damage.Offset != c.at || !strings.Contains(damage.Why, c.why) {
				t.Errorf("%v; want %s at %d: %s", err, c.file, c.at, c.why)
			}
			if after, _ := os.ReadFile(filepath.Join(dir, last)); !bytes.Equal(before, after) {
				t.Error("the last file was changed")
			}
		})
	}
}

// TestDamageWhileOpen: a reader says what it cannot read.
func TestDamageWhileOpen(t *testing.T) {
	dir := t.TempDir()
	s := openSpool(t, dir, small)
	fill(t, s, 3)
	b, err := os.ReadFile(s.path(1))
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)-1]++
	if err := os.WriteFile(s.path(1), b, 0o600); err != nil {
		t.Fatal(err)
	}
	r := s.Since(2)
	defer r.Close()
	var damage *DamageError
	if _, err := r.Next(context.Background()); !errors.As(err, &damage) || damage.Offset != int64(len(b))-recordSize(len(payload(3))) {
		t.Errorf("%v", err)
	}
}

// TestLeftSegments: segments that were acknowledged and whose removal a crash has undone, in any order, are removed.
func TestLeftSegments(t *testing.T) {
	dir := t.TempDir()
	s := openSpool(t, dir, small)
	fill(t, s, 60)
	first, err := os.ReadFile(s.path(1))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Ack(50); err != nil {
		t.Fatal(err)
	}
	closeSpool(t, s)
	if err := os.WriteFile(s.path(1), first, 0o600); err != nil {
		t.Fatal(err)
	}
	s = openSpool(t, dir, small)
	check(t, s, 51)
	if _, err := os.Stat(s.path(1)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the segment: %v", err)
	}
}

func BenchmarkSpool(b *testing.B) {
	s, err := OpenSpool(b.TempDir(), SpoolConfig{MaxBytes: 1 << 30})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	frame := make([]byte, 512)
	b.SetParallelism(16)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			n, err := s.Append(1, frame)
			if err != nil {
				b.Error(err)
				return
			}
			if n%1000 == 0 {
				s.Ack(n - 500) //nolint:errcheck // seen by Append
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
}
