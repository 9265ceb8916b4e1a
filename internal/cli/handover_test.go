package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/internal/statedir"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// TestPatiently: a scheduler that has just started holds the state directory before
// it answers, and a command that comes between is not refused.
func TestPatiently(t *testing.T) {
	starting := usage(&statedir.LockedError{Path: "/s", PID: 7})
	other := errors.New("another failure")
	ask := func(ctx context.Context, do func() error) error {
		_, err := change(ctx, &peer{offline: &offline{}}, func() (struct{}, error) { return struct{}{}, do() })
		return err
	}
	for _, tt := range []struct {
		name     string
		silent   time.Duration // how long it does not answer
		then     error
		want     error
		at, most time.Duration // when that is known
	}{
		{"answers at once", 0, nil, nil, 0, 0},
		{"answers later", 3 * time.Second, nil, nil, 3 * time.Second, 4 * time.Second},
		{"refuses later", 3 * time.Second, other, other, 3 * time.Second, 4 * time.Second},
		{"never answers", time.Hour, nil, starting, answerTime, answerTime + time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				err := ask(t.Context(), func() error {
					if time.Since(began) < tt.silent {
						return starting
					}
					return tt.then
				})
				if took := time.Since(began); !errors.Is(err, tt.want) || took < tt.at || took > tt.most {
					t.Errorf("got %v after %s", err, took)
				}
			})
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := ask(ctx, func() error { return starting }); !errors.Is(err, starting) {
		t.Errorf("of a command that is cancelled: %v", err)
	}
}

// TestHandedRunIsPatient: a scheduler that is killed while it answers does not end the
// wait for the run that was handed to it.
func TestHandedRunIsPatient(t *testing.T) {
	var said bytes.Buffer
	m := newTestMain(t, &said)
	m.con.stderr = &said
	o, err := m.local.own(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	at := utcNow()
	batch := queue.Batch{ID: job.NewBatchID(), CreatedAt: at}
	e := queue.Entry{ID: job.NewID(), CreatedAt: at, RunnableAt: at, Spec: job.Spec{Name: "fix", Worker: "shell", Instructions: "true"}}
	if err := o.store.Enqueue(t.Context(), batch, []queue.Entry{e}); err != nil {
		t.Fatal(err)
	}
	if err := o.store.Apply(t.Context(), queue.Cancel{ID: e.ID, Now: at}); err != nil {
		t.Fatal(err)
	}
	if e, err = o.store.Get(t.Context(), e.ID); err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int32
	scheduler := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var answer any = api.Events{Events: []api.Event{}}
		switch {
		case asked.Add(1) == 1:
			panic(http.ErrAbortHandler) // which closes the connection
		case r.URL.Path == "/v1/jobs":
			answer = api.Jobs{Jobs: stored(e), Total: 1}
		}
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	}))
	scheduler.Listener.Close()
	if scheduler.Listener, err = net.Listen("unix", o.dir.Socket()); err != nil {
		t.Fatal(err)
	}
	scheduler.Start()
	defer scheduler.Close()

	p, err := m.at.open()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	running := client.New(o.dir.Socket())
	defer running.Close()
	r := &handedRun{runs: m.runs, peer: p, running: running, options: runOptions{plain: true}}
	err = r.wait(t.Context(), batch.ID)
	if exit, ok := errors.AsType[*exitError](err); !ok || exit.code != exitFailed || exit.err != nil || asked.Load() < 3 {
		t.Errorf("after %d requests: %v, want the code of a job that was cancelled; said %s", asked.Load(), err, said.String())
	}
}

// TestHandOverInterrupted: Ctrl-C ends a command whose scheduler does not answer.
func TestHandOverInterrupted(t *testing.T) {
	for _, answers := range []bool{false, true} {
		m := newTestMain(t, io.Discard)
		asked, answer := make(chan struct{}), make(chan struct{})
		socket := filepath.Join(t.TempDir(), "socket")
		l, err := net.Listen("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		scheduler := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodPost {
				fmt.Fprint(w, "{}")
				return
			}
			close(asked)
			if answers {
				<-answer
				fmt.Fprint(w, `{"batch":"b"}`)
				return
			}
			io.Copy(io.Discard, r.Body) //nolint:errcheck // only then a client that leaves is noticed
			<-r.Context().Done()
		}))
		scheduler.Listener.Close()
		scheduler.Listener = l
		scheduler.Start()
		defer scheduler.Close()
		running := client.New(socket)
		defer running.Close()
		r := &handedRun{runs: m.runs, running: running, src: &source{name: "jobs.yaml"}, signals: make(chan os.Signal, 2)}
		go func() {
			<-asked
			if answers {
				close(answer)
				return
			}
			r.signals <- os.Interrupt
		}()
		opened, err := r.handOver(t.Context())
		exit, interrupted := errors.AsType[*exitError](err)
		if answers && (err != nil || opened.Batch != "b") || !answers && (!interrupted || exit.code != exitInterrupted) {
			t.Errorf("answers %v: opened %q, %v", answers, opened.Batch, err)
		}
	}
}
