//go:build linux

package faults

import (
	"context"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/internal/pgtest"
	"github.com/agentsched/agentsched/internal/testrun"
)

// How many scenarios of a fleet are played.
const (
	fleetSample = 10
	fleetSoak   = 100
)

// TestFleet plays scenarios of a fleet, each from a seed of its own.
func TestFleet(t *testing.T) {
	needNetworks(t)
	first, n := testrun.Seed(t), fleetSample
	switch {
	case os.Getenv(testrun.SeedVariable) != "":
		n = 1
	case testrun.Soaking():
		n = fleetSoak
	}
	if text := os.Getenv(scenariosVariable); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatalf("%s: %v", scenariosVariable, err)
		}
	}
	total := &tally{first: first, what: "fleets"}
	t.Cleanup(func() { t.Log(total) })
	for i := range n {
		seed := first + uint64(i)
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			playFleet(t, seed, total)
		})
	}
}

// TestFleetFaults: every fault of a fleet is in the scenarios, whichever row of them is soaked.
func TestFleetFaults(t *testing.T) {
	planned := map[faultKind]int{}
	for seed := range uint64(fleetSoak) {
		for _, x := range newFleetPlan(seed).Faults {
			planned[x.Do]++
		}
	}
	for _, kind := range fleetFaults {
		if planned[kind] < 5 {
			t.Errorf("%s is planned %d times in %d scenarios", kind, planned[kind], fleetSoak)
		}
	}
}

// needNetworks ends a test that cannot have namespaces: in CI it fails.
func needNetworks(t *testing.T) {
	t.Helper()
	if !pgtest.CanClock() && os.Getenv("CI") != "" {
		t.Fatal("libfaketime must be installed")
	}
	for _, program := range []string{"ip", "nft", "tc"} {
		if _, err := exec.LookPath(program); err != nil {
			lacks(t, err)
		}
	}
	n, err := newNetns()
	if err != nil {
		lacks(t, err)
	}
	if err := n.close(); err != nil {
		t.Fatal(err)
	}
}

func lacks(t *testing.T, err error) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatalf("network namespaces must be there: %v", err)
	}
	t.Skip(err)
}

// playFleet plays the scenario of a seed and checks it.
func playFleet(t *testing.T, seed uint64, total *tally) {
	playFleetPlan(t, newFleetPlan(seed), total, func(*fleet, context.Context) []string { return nil })
}

// playFleetPlan plays a plan and checks it; also looks at what is left in addition.
func playFleetPlan(t *testing.T, p *fleetPlan, total *tally, also func(*fleet, context.Context) []string) {
	f, err := newFleet(t, p)
	if f != nil {
		defer func() {
			if err := f.close(); err != nil {
				t.Error(err)
			}
		}()
	}
	if err != nil {
		t.Fatal(err)
	}
	var wrong []string
	if err := f.play(t.Context()); err != nil {
		wrong = append(f.census.errors(), err.Error())
	} else {
		wrong = append(f.check(t.Context()), also(f, t.Context())...)
	}
	total.add(f.scene)
	t.Log(strings.Join(f.told, "\n"))
	if len(wrong) > 0 {
		t.Errorf("again with %s=%d:\n%s\n\n%s", testrun.SeedVariable, p.Seed, strings.Join(wrong, "\n"), f.story())
	}
}
