//go:build linux || darwin

package agentcore_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/agentsched/agentsched/internal/agentcore"
	"github.com/agentsched/agentsched/internal/proc"
)

func TestDisk(t *testing.T) {
	dir := t.TempDir()
	d, err := agentcore.DiskSpace(dir)
	if err != nil {
		t.Fatal(err)
	}
	if d.Path != dir || d.TotalBytes <= 0 || d.FreeBytes <= 0 || d.FreeBytes > d.TotalBytes || d.FreeInodes > d.TotalInodes {
		t.Errorf("free space of a folder that can be written to: %+v", d)
	}
	if _, err := agentcore.DiskSpace(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no such folder: %v", err)
	}
}

func TestClockWithoutJump(t *testing.T) {
	origin := time.Now()
	before := agentcore.ReadClock(origin)
	after := agentcore.ReadClock(origin)
	if j := after.JumpSince(before); j > time.Second || j < -time.Second {
		t.Errorf("the clock jumped by %s between two readings", j)
	}
	if after.Mono < before.Mono {
		t.Errorf("the monotonic clock went from %s to %s", before.Mono, after.Mono)
	}
}

func TestUptime(t *testing.T) {
	before, began := proc.Uptime(), time.Now()
	for time.Since(began) < time.Millisecond {
	}
	if up := proc.Uptime(); before <= 0 || up-before < time.Millisecond {
		t.Errorf("after a millisecond, the host is up for %s, and was for %s", up, before)
	}
}

func TestJumpSince(t *testing.T) {
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	before := agentcore.Clock{Wall: noon, Mono: time.Minute}
	for _, tt := range []struct {
		name       string
		wall, mono time.Duration
		want       time.Duration
	}{
		{"both go on", time.Hour, time.Hour, 0},
		{"wall set ahead", 2*time.Hour + time.Second, time.Second, 2 * time.Hour},
		{"wall set back", -time.Hour, time.Second, -time.Hour - time.Second},
		{"at one moment", 0, 0, 0},
	} {
		after := agentcore.Clock{Wall: noon.Add(tt.wall), Mono: time.Minute + tt.mono}
		if got := after.JumpSince(before); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}
