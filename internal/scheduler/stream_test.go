package scheduler

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/workflow/pipeline"
)

// TestInlet: what is put in is read in order, one call ahead at most; whoever
// waits for room is told in time that there is none; the end comes after all.
func TestInlet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := newInlet()
		put := func(text string) (bool, error) {
			ctx, cancel := context.WithTimeout(t.Context(), roomTime)
			defer cancel()
			return in.put(ctx, []byte(text))
		}
		if taken, err := put("1\n"); !taken || err != nil {
			t.Fatalf("taken %t, %v", taken, err)
		}
		begun := time.Now()
		if taken, err := put("2\n"); taken || err != nil || time.Since(begun) != roomTime {
			t.Errorf("without room: taken %t, %v after %s", taken, err, time.Since(begun))
		}
		const n = 100
		go func() {
			for i := 2; i <= n; i++ {
				if taken, err := put(fmt.Sprintf("%d\n", i)); !taken || err != nil {
					t.Errorf("line %d: taken %t, %v", i, taken, err)
				}
			}
			in.end()
		}()
		lines := bufio.NewScanner(in)
		for i := 1; i <= n; i++ {
			if !lines.Scan() || lines.Text() != fmt.Sprint(i) {
				t.Fatalf("line %d is %q", i, lines.Text())
			}
		}
		if lines.Scan() || lines.Err() != nil {
			t.Errorf("behind the end: %q, %v", lines.Text(), lines.Err())
		}
		if _, err := put("x\n"); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("put behind the end: %v", err)
		}
	})
}

// TestInletClosed: closing ends whoever reads, and whoever waits for room.
func TestInletClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := newInlet()
		read := make(chan error)
		go func() {
			_, err := io.ReadAll(in)
			read <- err
		}()
		synctest.Wait()
		in.Close()
		if err := <-read; !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("reading ended with %v", err)
		}
		in = newInlet()
		if _, err := in.put(t.Context(), []byte("1\n")); err != nil {
			t.Fatal(err)
		}
		wrote := make(chan error)
		go func() {
			_, err := in.put(t.Context(), []byte("2\n"))
			wrote <- err
		}()
		synctest.Wait()
		in.Close()
		if err := <-wrote; !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("writing ended with %v", err)
		}
	})
}

// TestBlamesEvents: an event is only to blame for an end that it may have caused.
func TestBlamesEvents(t *testing.T) {
	var blamed []string
	for _, c := range job.ErrorClasses() {
		if blamesEvents(c) {
			blamed = append(blamed, string(c))
		}
	}
	if got, want := strings.Join(blamed, " "), "TIMEOUT STALLED CRASH INVALID_OUTPUT RESOURCE_EXHAUSTED VERIFY_FAILED UNKNOWN"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestEndLine: it is known by how it begins.
func TestEndLine(t *testing.T) {
	text, err := json.Marshal(pipeline.EndLine{Type: "end"})
	if err != nil || !strings.HasPrefix(string(text), endLine) {
		t.Errorf("an end line is %s, %v", text, err)
	}
}
