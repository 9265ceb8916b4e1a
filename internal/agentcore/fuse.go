package agentcore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/agentsched/agentsched/internal/proc"
	"github.com/agentsched/agentsched/permit"
)

// fuse is a process beside the core that kills the core's runs when their permits have lapsed and the core has not
// stopped them: it is frozen, or hangs. The process is this program, called with FuseCommand: see FuseMain. It needs
// nothing of the core but what it was told in time.
//
// A nil fuse does nothing.
type fuse struct {
	start func() (*proc.Tree, error)
	log   zerolog.Logger
	none  bool // the last start has failed, which is told once; for check alone

	// mu guards what follows. Heartbeats wait for it: it is never held while a process starts or ends, nor for the log.
	mu     sync.Mutex
	tree   *proc.Tree // nil: there is none
	broken error      // why it must be replaced, or nil
	says   fuseWord
	blown  bool // it has killed what may not be known yet
}

// fuseWord is all that a core tells its fuse: a line of JSON, which replaces the last.
type fuseWord struct {
	// Lease is that of the permits, with the time that the core has to stop its runs as the margin.
	Lease   permit.Lease  `json:"lease"`
	Renewed time.Duration `json:"renewed"` // the last renewal, by proc.Uptime
	// Spare are the runs that may go on without a lease (job.FinishOnPartition), by their tags.
	Spare map[string]proc.Kin `json:"spare,omitempty"`
}

// fuseBlows is the byte that a fuse writes before it kills.
const fuseBlows = '!'

// fuseWriteTime bounds how long the core waits for a fuse that does not read. The pipe takes some hundred words before.
const fuseWriteTime = 100 * time.Millisecond

// newFuse returns the fuse of a core whose process can be started again by the path program; "" has none.
func newFuse(program string, host *proc.Host, run string, log zerolog.Logger) *fuse {
	if program == "" || !fusible {
		return nil
	}
	return &fuse{log: log, says: fuseWord{Spare: map[string]proc.Kin{}}, start: func() (*proc.Tree, error) {
		return host.Start(proc.Spec{
			Run: run, Path: program, Name: FuseCommand, Args: []string{FuseCommand}, Stderr: os.Stderr,
			PipeStdin: true, PipeStdout: true, NewSession: true, PdeathSignal: syscall.SIGKILL,
			KeepCapabilities: true, // it kills what the core could
			Subreaper:        true, // no orphan is its own: it starts nothing
		})
	}}
}

// renew tells that the permits were renewed at a time by proc.Uptime, and how long they are valid.
func (f *fuse) renew(lease permit.Lease, at time.Duration) {
	f.tell(func(w *fuseWord) { w.Lease, w.Renewed = lease, at })
}

// spare keeps a run from being killed until the returned function is called.
func (f *fuse) spare(run string, kin proc.Kin) (end func()) {
	f.tell(func(w *fuseWord) { w.Spare[run] = kin })
	return func() { f.tell(func(w *fuseWord) { delete(w.Spare, run) }) }
}

// rest has the fuse kill nothing until the next renewal. It is for a core that has proven its runs gone.
func (f *fuse) rest() {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.says.Lease.Validity > 0 {
		f.says.Lease = permit.Lease{}
		f.send()
	}
}

// check replaces a process that has ended or does not listen, and starts one when permits can lapse. One goroutine calls it.
func (f *fuse) check() {
	if f == nil {
		return
	}
	f.mu.Lock()
	old, why, wanted := f.tree, f.broken, f.says.Lease.Validity > 0
	f.mu.Unlock()
	if old != nil && why == nil && exited(old) {
		why = fmt.Errorf("it has ended: %s", old.ExitState())
	}
	if old == nil && !wanted || old != nil && why == nil {
		return
	}
	if old != nil {
		f.log.Warn().Err(why).Msg("the fuse of the runs gets a successor")
		f.drop(old)
	}
	if !wanted {
		return
	}
	tree, err := f.start()
	if err != nil && !f.none {
		f.log.Warn().Err(err).Msg("no fuse: if this process stands still, its runs go on until the scheduler ends them")
	}
	f.none = err != nil
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tree, f.broken = tree, nil
	f.send()
}

func exited(tree *proc.Tree) bool {
	select {
	case <-tree.Exited():
		return true
	default:
		return false
	}
}

// drop ends a process that is, or was, the fuse's.
func (f *fuse) drop(tree *proc.Tree) {
	if _, err := tree.Stop(context.Background(), proc.Stages{Kill: time.Second}); err != nil {
		f.log.Warn().Err(err).Msg("end the fuse of the runs")
	}
	f.mu.Lock()
	f.listen()
	f.tree = nil
	f.mu.Unlock()
	tree.ClosePipes()
}

// tell changes what the process is to know.
func (f *fuse) tell(change func(*fuseWord)) {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.says)
	f.send()
}

// send tells the process, if there is one, all that it is to know. It is called with mu held.
func (f *fuse) send() {
	if f.tree == nil || f.broken != nil {
		return
	}
	word, err := json.Marshal(f.says)
	if err == nil {
		err = f.tree.Stdin().SetWriteDeadline(time.Now().Add(fuseWriteTime))
	}
	if err == nil {
		_, err = f.tree.Stdin().Write(append(word, '\n'))
	}
	f.broken = err
}

// listen takes what the process has said, without waiting. It is called with mu held.
func (f *fuse) listen() {
	if f.tree == nil {
		return
	}
	conn, err := f.tree.Stdout().SyscallConn()
	if err != nil {
		return
	}
	_ = conn.Control(func(fd uintptr) {
		var said [512]byte
		for {
			n, err := unix.Read(int(fd), said[:])
			switch {
			case n > 0 && len(bytes.Trim(said[:n], string(fuseBlows))) > 0:
				f.broken = fmt.Errorf("it says %.80q", said[:n]) // it is something else
			case n > 0:
				f.blown = true
			case !errors.Is(err, unix.EINTR):
				return
			}
		}
	})
}

// hasBlown says whether the fuse has killed runs since the last call, or may have. It knows of a kill before its effects
// can be seen.
func (f *fuse) hasBlown() bool {
	if f == nil {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.listen()
	blown := f.blown
	f.blown = false
	return blown
}

// close ends the process, when nobody calls check any more.
func (f *fuse) close() {
	if f == nil {
		return
	}
	f.mu.Lock()
	tree := f.tree
	f.mu.Unlock()
	if tree != nil {
		f.drop(tree)
	}
}
