package agentcore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
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

	mu    sync.Mutex // guards what follows
	tree  *proc.Tree // nil: there is none
	says  fuseWord
	blown bool // it has killed what may not be known yet
	ended bool
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

// check sees that the process lives if it has to.
func (f *fuse) check() {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.tree == nil || f.exited() {
		f.send()
	}
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

// send tells the process all that it is to know, and starts it if it has to live and does not.
func (f *fuse) send() {
	f.light()
	if f.tree == nil {
		return
	}
	word, err := json.Marshal(f.says)
	if err == nil {
		err = f.tree.Stdin().SetWriteDeadline(time.Now().Add(fuseWriteTime))
	}
	if err == nil {
		_, err = f.tree.Stdin().Write(append(word, '\n'))
	}
	if err != nil {
		f.log.Warn().Err(err).Msg("the fuse of the runs does not listen; it gets a successor")
		f.drop()
	}
}

// light starts the process if there is none and permits can lapse. The next call tries again what fails.
func (f *fuse) light() {
	if f.tree != nil && f.exited() {
		f.log.Warn().Stringer("state", f.tree.ExitState()).Msg("the fuse of the runs has ended; it gets a successor")
		f.drop()
	}
	if f.tree != nil || f.ended || f.says.Lease.Validity == 0 {
		return
	}
	tree, err := f.start()
	if err != nil {
		f.log.Warn().Err(err).Msg("no fuse: if this process stands still, its runs go on until the scheduler ends them")
		return
	}
	f.tree = tree
}

func (f *fuse) exited() bool {
	select {
	case <-f.tree.Exited():
		return true
	default:
		return false
	}
}

// drop ends the process.
func (f *fuse) drop() {
	_, err := f.tree.Stop(context.Background(), proc.Stages{Kill: time.Second})
	if err != nil {
		f.log.Warn().Err(err).Msg("end the fuse of the runs")
	}
	f.listen()
	f.tree.ClosePipes()
	f.tree = nil
}

// listen takes what the process has said, without waiting.
func (f *fuse) listen() {
	conn, err := f.tree.Stdout().SyscallConn()
	if err != nil {
		return
	}
	var said []byte
	_ = conn.Control(func(fd uintptr) {
		var buf [512]byte
		for {
			n, err := unix.Read(int(fd), buf[:])
			if n > 0 {
				said = append(said, buf[:n]...)
			} else if !errors.Is(err, unix.EINTR) {
				return
			}
		}
	})
	f.blown = f.blown || len(said) > 0
	if failed := bytes.Trim(said, string(fuseBlows)+"\n"); len(failed) > 0 {
		f.log.Error().Bytes("error", failed).Msg("the fuse could not end the runs of this core")
	}
}

// hasBlown says whether the fuse has killed runs since the last call, or may have. It knows of a kill before its effects
// can be seen.
func (f *fuse) hasBlown() bool {
	if f == nil {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.tree != nil {
		f.listen()
	}
	blown := f.blown
	f.blown = false
	return blown
}

// close ends the fuse for good.
func (f *fuse) close() {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = true
	if f.tree != nil {
		f.drop()
	}
}
