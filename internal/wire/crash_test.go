package wire

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// childSpool names the folder of the spool that this program, as a child of a test, writes to; childLimit bounds its files,
// and childBatch has it write one batch.
const (
	childSpool = "WIRE_TEST_SPOOL"
	childLimit = "WIRE_TEST_FSIZE"
	childBatch = "WIRE_TEST_BATCH"
)

var childConfig = SpoolConfig{MaxBytes: 8 << 20, MaxRecord: 8 << 10}

// appendForever appends from several goroutines and prints each number that was acknowledged to it, and each that it has
// acknowledged. It ends when it is killed, or when the spool is full.
func appendForever(dir string) int {
	if limit, err := strconv.ParseUint(os.Getenv(childLimit), 10, 64); err == nil {
		signal.Ignore(syscall.SIGXFSZ)
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: limit, Max: limit}); err != nil {
			fmt.Println("error", err)
			return 1
		}
	}
	s, err := OpenSpool(dir, childConfig)
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	if os.Getenv(childBatch) != "" {
		return appendBatch(s)
	}
	var wg sync.WaitGroup
	var once sync.Once
	for range 4 {
		wg.Go(func() {
			for {
				// Its payload is told by its length, since its number is not known before.
				length := rand.IntN(childConfig.MaxRecord)
				n, err := s.Append(byte(length), make([]byte, length))
				if err != nil {
					once.Do(func() { fmt.Println("error", errors.Is(err, ErrFull), err) })
					return
				}
				fmt.Println("appended", n, length)
				if n%50 == 0 {
					if err := s.Ack(n - 40); err != nil {
						fmt.Println("error", err)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	fmt.Println("full", s.Last())
	if err := s.Ack(s.Last()); err != nil {
		fmt.Println("error", err)
	}
	n, err := s.Append(0, make([]byte, 1024))
	fmt.Println("after", n, err)
	return 0
}

// appendBatch appends three records at once, of which two fit.
func appendBatch(s *Spool) int {
	var b *batch
	var err error
	for range 3 {
		if b, err = s.join(&Record{Payload: make([]byte, 4<<10)}); err != nil {
			fmt.Println("error", err)
			return 1
		}
	}
	fmt.Println(errors.Is(s.flush(b), ErrFull))
	return 0
}

func child(dir string, env ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), childSpool+"="+dir), env...)
	return cmd
}

// TestKilled: a process that is killed while it writes has lost nothing that was acknowledged to it.
func TestKilled(t *testing.T) {
	dir := t.TempDir()
	lengths := map[uint64]int{}
	for round := range 10 {
		cmd := child(dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines, kill := bufio.NewScanner(out), 50+rand.IntN(300)
		for n := 0; lines.Scan(); n++ {
			var number uint64
			var length int
			if _, err := fmt.Sscanf(lines.Text(), "appended %d %d", &number, &length); err != nil {
				t.Errorf("round %d: the child says %q", round, lines.Text())
				break
			}
			if _, twice := lengths[number]; twice {
				t.Errorf("round %d: number %d was given twice", round, number)
			}
			lengths[number] = length
			if n == kill {
				cmd.Process.Kill() //nolint:errcheck // it lives until it is waited for
			}
		}
		cmd.Process.Kill() //nolint:errcheck // in vain, if it has ended
		cmd.Wait()         //nolint:errcheck // killed

		s, err := OpenSpool(dir, childConfig)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		acked := s.Acked()
		r := s.Since(0)
		for n := acked + 1; n <= s.Last(); n++ {
			rec, err := r.Next(context.Background())
			if err != nil || rec.Number != n {
				t.Fatalf("round %d: record %d is %d, %v", round, n, rec.Number, err)
			}
			if length, known := lengths[n]; known && (len(rec.Payload) != length || rec.Kind != byte(length)) {
				t.Errorf("round %d: record %d has %d bytes; %d were acknowledged", round, n, len(rec.Payload), length)
			}
			lengths[n] = len(rec.Payload) // also one that was written and not told
		}
		r.Close()
		for n := range lengths {
			if n > s.Last() {
				t.Errorf("round %d: record %d was acknowledged and is not there; the last is %d", round, n, s.Last())
			}
		}
		closeSpool(t, s)
	}
	t.Logf("%d records", len(lengths))
}

// TestDiskFull: where the system takes no more bytes, records before are safe, what was half written is gone, and the
// spool goes on when what it holds was acknowledged.
func TestDiskFull(t *testing.T) {
	dir := t.TempDir()
	cmd := child(dir, childLimit+"=100000")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	text := string(out)
	if !strings.Contains(text, "error true append to spool: spool is full: write ") || !strings.Contains(text, "file too large") || strings.Contains(text, "error false") {
		t.Errorf("the child says %s", text)
	}
	_, rest, _ := strings.Cut(text, "full ")
	var last, after uint64
	if n, err := fmt.Sscanf(rest, "%d\nafter %d <nil>", &last, &after); n != 2 || after != last+1 {
		t.Fatalf("%v in %q", err, rest)
	}
	if n := uint64(strings.Count(text, "appended")); n != last {
		t.Errorf("%d records were acknowledged, and the last is %d", n, last)
	}
	s := openSpool(t, dir, childConfig)
	if s.Last() != after || s.Acked() != last {
		t.Errorf("last %d, acked %d; want %d and %d", s.Last(), s.Acked(), after, last)
	}
}

// TestHalfBatch: of records that were appended together none is there when the disk had no room for all.
func TestHalfBatch(t *testing.T) {
	dir := t.TempDir()
	out, err := child(dir, childLimit+"=10000", childBatch+"=1").CombinedOutput()
	if err != nil || string(out) != "true\n" {
		t.Fatalf("%v: the child says %s", err, out)
	}
	if s := openSpool(t, dir, childConfig); s.Last() != 0 {
		t.Errorf("%d records are there", s.Last())
	}
}
