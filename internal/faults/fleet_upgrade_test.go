//go:build linux

package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"

	"github.com/agentsched/agentsched/internal/testrun"
)

// previousVariable names the folder with scheduler and agentcore of an earlier version, from which the fleet is
// upgraded. Without it, it is from copies of the programs themselves. scripts/soak builds those of the version before.
const previousVariable = "AGENTSCHED_FAULTS_PREVIOUS"

// upgradeMachine ends a machine's program in order and starts the new one in its place.
const upgradeMachine faultKind = "upgrade a machine"

// How many fleets are upgraded in a soak.
const upgradeSoak = 5

// TestFleetUpgrade: a fleet whose machines all run the version before is brought to this one under load, machine after
// machine in any order, while others are killed. What holds for every scenario holds for this, too.
func TestFleetUpgrade(t *testing.T) {
	needNetworks(t)
	first, n, total := testrun.Seed(t), 1, &tally{what: "upgrades of fleets"}
	if testrun.Soaking() && os.Getenv(testrun.SeedVariable) == "" {
		n = upgradeSoak
	}
	total.first = first
	t.Cleanup(func() { t.Log(total) })
	for i := range n {
		seed := first + uint64(i)
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			playFleetPlan(t, newUpgradePlan(seed), total, (*fleet).checkUpgraded)
		})
	}
}

// newUpgradePlan makes the plan of a seed.
func newUpgradePlan(seed uint64) *fleetPlan {
	p := newFleetPlan(seed)
	r := rand.New(rand.NewPCG(seed, 16))
	p.Upgrades, p.Rate, p.Split = true, 1, len(p.Jobs)/3
	for i := range 24 {
		p.Jobs = append(p.Jobs, p.newJob(r, fmt.Sprintf("more-%d", i), pick(r, "red", "blue", "green")))
	}
	p.Faults = nil
	for i, machine := range r.Perm(fleetNodes + fleetSchedulers) {
		p.Faults = append(p.Faults, fault{After: 20 + 80*i, Do: upgradeMachine, Pick: machine})
	}
	for _, do := range []faultKind{killNode, killLeader, cutCommit} {
		f := newFleetFault(r, len(p.Jobs))
		for f.Do != do {
			f = newFleetFault(r, len(p.Jobs))
		}
		p.Faults = append(p.Faults, f)
	}
	slices.SortStableFunc(p.Faults, func(a, b fault) int { return a.After - b.After })
	return p
}

// previous returns the folder with the programs that machines have at first.
func previous() (string, error) {
	if dir := os.Getenv(previousVariable); dir != "" {
		return dir, nil
	}
	dir, err := os.MkdirTemp(programs, "previous-")
	for _, name := range []string{"scheduler", "agentcore"} {
		if err == nil {
			err = os.Link(program(name), filepath.Join(dir, name))
		}
	}
	return dir, err
}

// upgrade replaces the program of a machine.
func (f *fleet) upgrade(ctx context.Context, m *machine) error {
	if m.hurt || m.down || m.run.over() || slices.Contains(f.schedulers, m) && len(f.working()) < 2 {
		return errMissed
	}
	m.down = true
	if err := m.run.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-m.run.ended:
	case <-ctx.Done():
		return fmt.Errorf("%s does not end: %w\n%s", m.name, context.Cause(ctx), m.run)
	}
	m.programs = programs
	f.upgraded++
	return f.up(m)
}

// checkUpgraded: all machines were upgraded.
func (f *fleet) checkUpgraded(context.Context) (wrong []string) {
	if want := fleetNodes + fleetSchedulers; f.upgraded != want {
		wrong = append(wrong, fmt.Sprintf("%d machines of %d were upgraded", f.upgraded, want))
	}
	return wrong
}
