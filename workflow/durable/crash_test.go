package durable_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/internal/testrun"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue/sqlite"
	"github.com/agentsched/agentsched/workflow/durable"
)

// crashVariable makes the test binary a program of steps on the named store.
const crashVariable = "AGENTSCHED_TEST_STEPS_STORE"

func TestMain(m *testing.M) {
	if path := os.Getenv(crashVariable); path != "" {
		if err := crashProgram(context.Background(), path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

var crashSpace = durable.Space("01a1fcce-6b90-7022-94af-83e4d513c5ef")

// crashProgram takes 24 steps, every fourth of them with two within it at the same
// time. It prints "computing ID" before each computation and "got ID RESULT" when
// it has a result, each in one write. No two computations give the same result.
func crashProgram(ctx context.Context, path string) error {
	store, err := sqlite.Open(ctx, path, sqlite.Options{})
	if err != nil {
		return err
	}
	defer store.Close()
	ctx = durable.With(ctx, durable.New(durable.Config{Store: store, Space: crashSpace}))
	var leaf func(ctx context.Context, outer, id string, inputs any) (string, error)
	leaf = func(ctx context.Context, outer, id string, inputs any) (string, error) {
		got, err := durable.StepOf(ctx, id, inputs, func(ctx context.Context) (string, error) {
			fmt.Printf("computing %s%s\n", outer, id)
			if outer == "" && strings.HasSuffix(id, "0") {
				errs := make(chan error, 2)
				for _, inner := range []string{"x", "y"} {
					go func() {
						_, err := leaf(ctx, id+"/", inner, nil)
						errs <- err
					}()
				}
				for range 2 {
					if err := <-errs; err != nil {
						return "", err
					}
				}
			}
			return string(job.NewID()), nil
		})
		if err == nil {
			fmt.Printf("got %s%s %s\n", outer, id, got)
		}
		return got, err
	}
	last := ""
	for i := range 24 {
		if last, err = leaf(ctx, "", fmt.Sprintf("%02d-%d", i, i%4), last); err != nil {
			return err
		}
	}
	return nil
}

// TestKilledProcess kills a real process at random moments, again and again, until
// it has come to its end: over all processes each step had one result, and none was
// computed once its result was on disk.
func TestKilledProcess(t *testing.T) {
	seed := testrun.Seed(t)
	random := rand.New(rand.NewPCG(seed, 0))
	times := 1 // a sample
	if testrun.Soaking() {
		times = 10
	}
	for range times {
		path := filepath.Join(t.TempDir(), "queue.db")
		results := map[string]string{}
		for process := 0; ; process++ {
			stored := storedSteps(t, path)
			lines, ended := runAndKill(t, path, 1+random.IntN(len(stored)+12))
			for _, line := range lines {
				verb, rest, _ := strings.Cut(line, " ")
				id, got, _ := strings.Cut(rest, " ")
				switch verb {
				case "computing":
					if _, ok := stored[id]; ok || results[id] != "" {
						t.Fatalf("process %d computes step %s, whose result is stored", process, id)
					}
				case "got":
					if before := results[id]; before != "" && before != got || stored[id] != "" && stored[id] != got {
						t.Fatalf("process %d got %s of step %s, before it was %s", process, got, id, before)
					}
					results[id] = got
				}
			}
			if ended {
				break
			}
		}
		if last := storedSteps(t, path); len(last) != 36 || len(results) < 24 {
			t.Errorf("%d steps are stored and %d were seen, want 36 stored", len(last), len(results))
		}
	}
}

// storedSteps returns the results on disk, as the next process will find them.
func storedSteps(t *testing.T, path string) map[string]string {
	t.Helper()
	store, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	steps, _, err := durable.Page(t.Context(), store, crashSpace, "", 0)
	if err != nil {
		t.Fatal(err)
	}
	results := map[string]string{}
	for _, s := range steps {
		results[s.ID] = strings.Trim(string(s.Result), `"`)
	}
	return results
}

// runAndKill runs the program and kills it when it has printed so many lines. It
// returns all whole lines that it printed, and whether it had ended by itself.
func runAndKill(t *testing.T, path string, after int) (lines []string, ended bool) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), crashVariable+"="+path)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for out := bufio.NewReader(stdout); ; {
		line, err := out.ReadString('\n')
		if err != nil {
			break
		}
		if lines = append(lines, strings.TrimSuffix(line, "\n")); len(lines) == after {
			if err := cmd.Process.Kill(); err != nil {
				t.Error(err)
			}
		}
	}
	err = cmd.Wait()
	if err != nil && cmd.ProcessState.ExitCode() != -1 {
		t.Fatalf("the program failed: %v", err)
	}
	return lines, err == nil
}
