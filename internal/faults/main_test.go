//go:build linux

package faults

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/agentsched/agentsched/internal/proc"
	"github.com/agentsched/agentsched/internal/sandbox"
	"github.com/agentsched/agentsched/internal/testrun"
)

// programs is the folder of scheduler, agentcore and puppet, and in race/ of the
// first two with the race detector. TestMain builds them.
var programs string

// cgroups says whether a run can have a cgroup here. TestMain tries it.
var cgroups bool

// levels are those of the sandbox that hold runs here. TestMain tries them, unless
// levelVariable names one.
var levels []sandbox.Level

const levelVariable = "AGENTSCHED_FAULTS_LEVEL"

const raceVariable = "AGENTSCHED_FAULTS_RACE"

// atOnce is how many scenarios are played at once, unless -parallel says
// otherwise: they wait more than they compute.
const atOnce = "3"

func TestMain(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	end, err := testrun.Keep()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	err = os.Chmod(os.TempDir(), 0o711) // the database's user is another one
	dir, failed := os.MkdirTemp("", "faults-bin-")
	err = errors.Join(err, failed)
	if !given {
		err = errors.Join(err, flag.Set("test.parallel", atOnce))
	}
	if err == nil {
		programs = dir
		err = errors.Join(buildAll(), tryLevels(), tryCgroup())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "build the programs:", err)
		end()
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		end()
		os.Exit(code)
	}))
}

func buildAll() error {
	all := []string{"./cmd/scheduler", "./cmd/agentcore", "./internal/faults/puppet"}
	if err := build(append([]string{"-o", programs + "/"}, all...)...); err != nil {
		return err
	}
	if !racing() {
		return nil
	}
	if err := os.Mkdir(filepath.Join(programs, "race"), 0o700); err != nil {
		return err
	}
	// As scripts/test has it: SQLite's own code is slow under the detector.
	race := []string{"-race", "-gcflags=modernc.org/libc=-race=false", "-gcflags=modernc.org/sqlite/lib=-race=false"}
	return build(append(append(race, "-o", filepath.Join(programs, "race")+"/"), all[:2]...)...)
}

func tryLevels() error {
	if named := os.Getenv(levelVariable); named != "" {
		levels = []sandbox.Level{sandbox.Level(named)}
		return nil
	}
	host := sandbox.Probe(context.Background())
	for _, level := range []sandbox.Level{sandbox.Standard, sandbox.Strict} {
		switch err := host.Can(level); {
		case err == nil:
			levels = append(levels, level)
		case os.Getenv("AGENTSCHED_REQUIRE_SANDBOX") != "":
			return err
		}
	}
	if len(levels) == 0 {
		levels = []sandbox.Level{sandbox.None}
	}
	return nil
}

func tryCgroup() error {
	host, err := proc.NewHost(proc.Config{Cgroup: fmt.Sprintf("faults-%d", os.Getpid()), Log: zerolog.Nop()})
	if err != nil {
		return err
	}
	cgroups = host.Cgroup() != ""
	return host.Close()
}

func racing() bool { return os.Getenv(raceVariable) != "0" }

func build(args ...string) error {
	cmd := exec.Command("go", append([]string{"build"}, args...)...)
	cmd.Dir = filepath.Join("..", "..")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

func program(name string) string { return filepath.Join(programs, name) }

// program returns the path of scheduler or agentcore, as the plan has them.
func (s *scene) program(name string) string {
	if s.plan.Race && racing() {
		return program(filepath.Join("race", name))
	}
	return program(name)
}
