// Command measure prints how large the project is where a reader or a user feels it,
// beside what it should be. It is run in the project's root, and judges nothing: it
// fails only if it cannot measure.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
)

// contracts are the packages that somebody else implements or calls.
var contracts = []string{"job", "queue", "permit", "ipc", "worker", "schedule", "api"}

func main() {
	if err := report(); err != nil {
		fmt.Fprintln(os.Stderr, "measure:", err)
		os.Exit(1)
	}
}

func report() error {
	s, err := read(os.DirFS("."))
	if err != nil {
		return err
	}
	packages, err := packages()
	if err != nil {
		return err
	}
	scheduler, core, err := programs()
	if err != nil {
		return err
	}

	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprint(out, "measure\tis\tgoal\t\n")
	row := func(what, is, goal string, met bool) {
		mark := ""
		if !met {
			mark = "missed"
		}
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\n", what, is, goal, mark)
	}
	atMost := func(what string, is, most int) {
		row(what, fmt.Sprint(is), fmt.Sprintf("at most %d", most), is <= most)
	}
	lines := 0
	for _, n := range s.code {
		lines += n
	}
	atMost("lines of Go, without comments and the test kit", lines, 67_000)
	atMost("packages of the two programs", packages, 50)
	for i, t := range s.largest() {
		if n := len(s.methods[t]); i < 4 || n > 40 {
			atMost("methods of "+t, n, 40)
		}
	}
	atMost("mutexes in schedule", s.mutexes["schedule"], 0)
	atMost("mutexes in internal/scheduler.Scheduler", s.mutexes["internal/scheduler.Scheduler"], 3)
	atMost("type assertions on parts of a store", s.partsAsserted(), 0)
	for _, p := range contracts {
		share := 100 * s.comments[p] / max(1, s.comments[p]+s.code[p])
		row("comments in "+p, fmt.Sprintf("%d %%", share), "at least 25 %", share >= 25)
	}
	megabytes := func(what string, bytes int64, most float64) {
		mb := float64(bytes) / 1e6
		row(what, fmt.Sprintf("%.1f MB", mb), fmt.Sprintf("at most %.1f MB", most), mb <= most)
	}
	megabytes("bin/scheduler", scheduler, 30)
	megabytes("bin/agentcore", core, 7.5)
	return out.Flush()
}

// packages returns how many packages of this module the two programs are made of.
func packages() (int, error) {
	out, err := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{if .Main}}one{{end}}{{end}}", "./cmd/...").Output()
	if err != nil {
		return 0, fmt.Errorf("list the packages of ./cmd/...: %w", err)
	}
	return strings.Count(string(out), "one"), nil
}

// programs returns the sizes in bytes of the two programs as make build makes them.
func programs() (scheduler, core int64, err error) {
	dir, err := os.MkdirTemp("", "measure")
	if err != nil {
		return 0, 0, err
	}
	defer os.RemoveAll(dir)
	if out, err := exec.Command("make", "build", "bin="+dir+"/").CombinedOutput(); err != nil {
		return 0, 0, fmt.Errorf("make build: %w\n%s", err, out)
	}
	first, err1 := os.Stat(filepath.Join(dir, "scheduler"))
	second, err2 := os.Stat(filepath.Join(dir, "agentcore"))
	if err := errors.Join(err1, err2); err != nil {
		return 0, 0, err
	}
	return first.Size(), second.Size(), nil
}

// largest returns the types in the order of their number of methods, most first.
func (s *source) largest() []string {
	var all []string
	for t := range s.methods {
		all = append(all, t)
	}
	slices.SortFunc(all, func(a, b string) int {
		if n := len(s.methods[b]) - len(s.methods[a]); n != 0 {
			return n
		}
		return strings.Compare(a, b)
	})
	return all
}
