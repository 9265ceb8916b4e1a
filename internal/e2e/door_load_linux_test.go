package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/internal/testrun"
	"github.com/agentsched/agentsched/job"
)

// What the load test does, and how much memory the server may take for it.
const (
	loadClients   = 64
	loadListeners = 50
	loadDead      = 10 // listeners that never read
	loadMemory    = 512 << 20
)

// loadJobs is how many jobs the load test submits.
func loadJobs() int {
	if testrun.Soaking() {
		return 10_000
	}
	return 1_000
}

// TestDoorUnderLoad: 64 clients submit thousands of jobs over HTTP while 50 listeners
// follow everything and 10 more never read a byte; the server is killed with
// SIGKILL in the middle, and takes the rest when it is back. Every job that was
// acknowledged is there afterwards, once, every refusal is one that says why, and
// the server's memory stays bounded.
func TestDoorUnderLoad(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	// Nothing runs: it is about the door.
	b.config["api"] = obj{"rate": obj{"per_second": 1_000_000, "burst": 1_000_000}}
	r := b.serve()
	if _, errs, code := b.command("pause"); code != 0 {
		t.Fatalf("pause: exit code %d\n%s", code, errs)
	}
	ctx, stop := context.WithCancel(t.Context())
	var listening sync.WaitGroup
	defer listening.Wait()
	defer stop()
	var heard atomic.Int64
	for i := range loadListeners + loadDead {
		listening.Go(func() { b.listen(ctx, i >= loadListeners, &heard) })
	}

	var next, refused atomic.Int64
	var mu sync.Mutex
	acked := map[job.Name]job.ID{}
	half, done := make(chan struct{}), make(chan struct{})
	var once sync.Once
	go func() {
		defer close(done)
		each(loadClients, func(int) {
			c := b.client()
			for {
				n := next.Add(1)
				if n > int64(loadJobs()) {
					return
				}
				if n == int64(loadJobs()/2) {
					once.Do(func() { close(half) })
				}
				name := job.Name(fmt.Sprintf("job-%05d", n))
				in := api.Submission{Source: string(name), Digest: string(name), Jobs: []job.Spec{{Name: name, Tenant: "load", Type: job.Tool, Worker: "shell",
					Instructions: "true", Workspace: job.Workspace{Isolation: job.NoWorkspace}}}}
				for {
					out, err := c.Submit(ctx, in, client.WithKey(string(name)))
					if err == nil {
						mu.Lock()
						acked[name] = out.Jobs[0].ID
						mu.Unlock()
						break
					}
					if ctx.Err() != nil {
						return
					}
					if refused.Add(1); !isClear(err) {
						t.Errorf("%s: %v", name, err)
						return
					}
					b.eventually("a server is there again", func() bool { _, err := c.Status(ctx); return err == nil || ctx.Err() != nil })
				}
			}
		})
	}()
	select {
	case <-half:
	case <-done:
		t.Fatal("the clients ended before the kill")
	}
	before := memoryPeak(t, r.cmd.Process.Pid)
	r.kill()
	r = b.serve()
	<-done
	after := memoryPeak(t, r.cmd.Process.Pid)
	t.Logf("%d jobs acknowledged, %d tries refused or cut off by the kill, %d updates heard; peak resident memory %d MiB and %d MiB",
		len(acked), refused.Load(), heard.Load(), before>>20, after>>20)
	if len(acked) != loadJobs() {
		t.Errorf("%d jobs were acknowledged, want %d", len(acked), loadJobs())
	}
	if heard.Load() == 0 {
		t.Error("no listener heard anything")
	}
	if peak := max(before, after); peak > loadMemory {
		t.Errorf("the server took %d MiB, want at most %d", peak>>20, int64(loadMemory)>>20)
	}

	c := b.client()
	stored := map[job.Name]job.ID{}
	for e, err := range c.All(t.Context(), client.ListQuery{Limit: 1000}) {
		if err != nil {
			t.Fatal(err)
		}
		if stored[e.Spec.Name] != "" {
			t.Errorf("%s is there twice", e.Spec.Name)
		}
		if e.State != job.Queued {
			t.Errorf("%s is %s", e.Spec.Name, e.State)
		}
		stored[e.Spec.Name] = e.ID
	}
	for name, id := range acked {
		if stored[name] != id {
			t.Errorf("%s was acknowledged as %s, and is stored as %q", name, id, stored[name])
		}
	}
	if len(stored) != loadJobs() {
		t.Errorf("%d jobs are stored, want %d", len(stored), loadJobs())
	}
	stop()
	r.stop()
	b.soundState()
}

// isClear reports whether an error says what the client can do: the server was
// not there, or cut off, or says that it takes nothing now.
func isClear(err error) bool {
	var p *api.Problem
	if errors.As(err, &p) {
		return p.Status == http.StatusServiceUnavailable || p.Status == http.StatusTooManyRequests
	}
	return true // of the connection
}

// listen follows all updates until ctx ends, and connects again whenever the
// server goes away. One that is dead never reads.
func (b *bench) listen(ctx context.Context, dead bool, heard *atomic.Int64) {
	socket := filepath.Join(b.state, "scheduler.sock")
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	defer tr.CloseIdleConnections()
	for last := ""; ctx.Err() == nil; {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://scheduler/v1/stream?kinds=job,event,core", nil)
		if err != nil {
			b.t.Error(err)
			return
		}
		req.Header.Set(client.KeyHeader, keyIn(b.t, filepath.Join(b.state, client.KeyFile)))
		if last != "" {
			req.Header.Set("Last-Event-ID", last)
		}
		resp, err := tr.RoundTrip(req)
		if err != nil {
			// The server is away for a moment.
			wait := time.NewTimer(20 * time.Millisecond)
			select {
			case <-ctx.Done():
			case <-wait.C:
			}
			continue
		}
		if dead {
			<-ctx.Done()
			resp.Body.Close()
			return
		}
		lines := bufio.NewScanner(resp.Body)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			if id, ok := strings.CutPrefix(lines.Text(), "id:"); ok {
				last = strings.TrimSpace(id)
				heard.Add(1)
			}
		}
		resp.Body.Close()
	}
}

// memoryPeak returns the most resident memory, in bytes, that a process has had.
func memoryPeak(t *testing.T, pid int) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kib << 10
		}
	}
	t.Fatalf("no VmHWM in the status of %d", pid)
	return 0
}
