package supervisor

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/agentsched/agentsched/job"
)

func report(n int) Report {
	return Report{
		ID: uuid.Must(uuid.NewV7()).String(), Time: time.Date(2026, 1, 2, 3, 4, n, 0, time.UTC), Core: 1, PID: n, Version: "v1", Cause: "agentcore died",
		Exit: "exit code 2", Uptime: job.Duration(1500 * time.Millisecond), Runs: []string{"i/j/1"}, LastWords: "panic: no",
		Stderr: "{}\n", Dump: "panic: no\n\ngoroutine 1 [running]:\n",
	}
}

func TestWriteReport(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state", "crashes")
	if all, err := Reports(dir); err != nil || len(all) > 0 {
		t.Errorf("of no folder: %v, %v", all, err)
	}
	var want []Report
	for n := range 3 {
		r := report(n)
		if err := r.Write(dir); err != nil {
			t.Fatal(err)
		}
		want = append([]Report{r}, want...)
	}
	if got, err := Reports(dir); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	info, err := os.Stat(filepath.Join(dir, want[0].ID+".json"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	// A file that is no report, or was damaged, hides no other.
	for name, text := range map[string]string{"zzz.json": "{", "notes.txt": "hello", "report-1.tmp": "{}"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Reports(dir)
	if !reflect.DeepEqual(got, want) || err == nil || !strings.Contains(err.Error(), "zzz.json") || strings.Contains(err.Error(), "notes") {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, id := range []string{"", "../x", "a/b"} {
		if err := (&Report{ID: id}).Write(dir); err == nil {
			t.Errorf("wrote a report with id %q", id)
		}
	}
}

func TestNewestReportsAreKept(t *testing.T) {
	dir := t.TempDir()
	var newest []string
	for n := range KeptReports + 7 {
		r := report(n)
		if err := r.Write(dir); err != nil {
			t.Fatal(err)
		}
		newest = append(newest, r.ID)
	}
	newest = newest[7:]
	all, err := Reports(dir)
	if err != nil || len(all) != KeptReports {
		t.Fatalf("%d reports, %v", len(all), err)
	}
	for i, r := range all {
		if want := newest[len(newest)-1-i]; r.ID != want {
			t.Errorf("report %d is %s, want %s", i, r.ID, want)
		}
	}
}

func TestReportsAtOnce(t *testing.T) {
	dir := t.TempDir()
	var writers sync.WaitGroup
	for w := range 8 {
		writers.Go(func() {
			for n := range 20 {
				r := report(w*20 + n)
				if err := r.Write(dir); err != nil {
					t.Error(err)
				}
				if _, err := Reports(dir); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != KeptReports {
		t.Errorf("%d files are left, %v", len(entries), err)
	}
}

func TestFindReport(t *testing.T) {
	dir := t.TempDir()
	if _, err := FindReport(dir, Latest); err == nil {
		t.Errorf("of none: %v", err)
	}
	for n, id := range []string{"0190-aaaa", "0190-aabb", "0191-aabb-cc"} {
		r := report(n)
		r.ID = id
		if err := r.Write(dir); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		ref, want, err string
	}{
		{"0190-aaaa", "0190-aaaa", ""}, {"0191", "0191-aabb-cc", ""}, {"bb", "0190-aabb", ""}, {"cc", "0191-aabb-cc", ""},
		{Latest, "0191-aabb-cc", ""}, {"0190", "", "several crash reports match"}, {"", "", "no such crash report"}, {"90", "", "no such crash report"},
	} {
		t.Run(fmt.Sprintf("%q", tc.ref), func(t *testing.T) {
			if r, err := FindReport(dir, tc.ref); r.ID != tc.want || (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("found %q, %v", r.ID, err)
			}
		})
	}
}
