package sandbox

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/agentsched/agentsched/internal/proc"
)

// Start is how a program is started under a policy: Host.Start is given what Apply makes of the program's Spec. Close is
// called when the run has ended, or was not started.
//
// What starts the program otherwise takes Path instead of the program's and Extra instead of the program's descriptors,
// which are the first of them; the program's name, arguments, environment and folder stay. It calls Started when the
// process was started. Level Strict can only be started by Apply.
type Start struct {
	Path  string
	Extra []*os.File // descriptors 3, 4, and so on; the program gets only its own

	mark             uint64
	keepCapabilities bool // until the stub gives them up itself
	system           start
}

// startTimeout bounds how long a program's start is waited for. It is for a file system that does not answer: when the
// process ends, that is seen.
const startTimeout = time.Minute

var errSlow = fmt.Errorf("it has taken more than %v", startTimeout)

// Apply returns the Spec that starts the sandbox instead of the program of spec, whose path and descriptors are those that
// Prepare was given. Host.Start then returns when the program was started in it, or why it was not.
func (s *Start) Apply(spec proc.Spec) proc.Spec {
	spec.Name = cmp.Or(spec.Name, spec.Path)
	spec.Path, spec.Extra = s.Path, s.Extra
	spec.KeepCapabilities, spec.Mark = s.keepCapabilities, s.mark
	spec.Enter = func(leader int) (proc.Inner, error) {
		ctx, cancel := context.WithTimeoutCause(context.Background(), startTimeout, errSlow)
		defer cancel()
		return s.enter(ctx, leader)
	}
	return s.around(spec)
}

// dialHost connects to a port of this process' loopback.
func dialHost(ctx context.Context, port uint16) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
}
