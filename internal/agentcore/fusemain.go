package agentcore

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentsched/agentsched/internal/proc"
	"github.com/agentsched/agentsched/permit"
)

// FuseCommand is the argument with which this program runs as a core's fuse, and its name there.
const FuseCommand = "agentcore-fuse"

// fuseProgram is this process' own program, also where another version lies at its path by now.
const fuseProgram = "/proc/self/exe"

// fusible says whether this system has what a fuse needs (proc.KillBelow).
const fusible = runtime.GOOS == "linux"

// FuseMain is the fuse of the core that has started this process: it reads what that says on standard input, and kills what
// the core has started when the lease that it was told is over. It ends with its input, and with the core. It returns the
// program's exit code.
//
// It lives as long as its core does and does as good as nothing, so it is to be small.
func FuseMain() int {
	debug.SetGCPercent(10)
	proc.KeepDescriptors()
	if err := proc.Seclude(); err != nil {
		fmt.Fprintln(os.Stderr, FuseCommand+":", err)
	}
	core, err := proc.Find(os.Getppid())
	if err != nil {
		return ExitFailure // it has ended, and its runs with it
	}
	_ = unix.SetNonblock(int(os.Stdout.Fd()), true) // a core that stands still does not read
	words := make(chan fuseWord)
	go func() {
		defer close(words)
		readFuseWords(os.Stdin, words)
	}()
	watch := fuseWatch{blow: func(spare []proc.Kin) {
		fmt.Print(string(fuseBlows))       // before: see fuse.hasBlown
		_, _ = proc.KillBelow(core, spare) // what it could not kill it tries again with the next look
	}}
	watch.run(words, proc.Uptime)
	return ExitOK
}

// readFuseWords reads until the end, or what is not a core's.
func readFuseWords(in io.Reader, words chan<- fuseWord) {
	for lines := bufio.NewReader(in); ; {
		line, err := lines.ReadBytes('\n')
		var w fuseWord
		if err != nil || json.Unmarshal(line, &w) != nil {
			return
		}
		words <- w
	}
}

// fuseWatch decides when the fuse blows.
type fuseWatch struct {
	blow  func(spare []proc.Kin)
	lease permit.Lease
	word  fuseWord // the last
}

// run looks at the lease until words is closed. After its end it blows again with every look until the next renewal:
// whatever was started meanwhile has no permit either.
func (f *fuseWatch) run(words <-chan fuseWord, clock func() time.Duration) {
	look := time.NewTimer(f.lease.NextLook())
	defer look.Stop()
	for {
		select {
		case w, ok := <-words:
			if !ok {
				return
			}
			f.take(w, clock())
		case <-look.C:
		}
		if f.lease.Over(clock()) {
			f.blow(f.spared())
		}
		look.Reset(f.lease.NextLook())
	}
}

// take looks at the lease before it is renewed: this process may have stood still, too, since the word was written. A
// lease of another validity begins anew, since that says what a stop is.
func (f *fuseWatch) take(w fuseWord, now time.Duration) {
	anew := w.Lease.Validity != f.lease.Validity
	if anew {
		f.lease = permit.Lease{}
	}
	f.lease.Over(now)
	f.lease.Validity, f.lease.Margin = w.Lease.Validity, w.Lease.Margin
	if anew || w.Renewed > f.word.Renewed {
		f.lease.Renew(w.Renewed)
	}
	f.word = w
}

func (f *fuseWatch) spared() (list []proc.Kin) {
	for _, kin := range f.word.Spare {
		list = append(list, kin)
	}
	return list
}
