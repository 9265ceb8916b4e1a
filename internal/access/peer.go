package access

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/user"
	"strconv"
	"sync"
	"syscall"

	"github.com/agentsched/agentsched/internal/proc"
)

type peerKey struct{}

// peer is the process at the other end of a unix socket.
type peer struct {
	uid     uint32
	process proc.Proc // zero if the system does not tell, or it is elsewhere
	// elsewhere: it is in a pid namespace that this process does not see.
	elsewhere bool
	gone      bool  // it has ended
	err       error // why nothing is known of it
}

// caller is the peer of a connection. Where it comes from is asked once.
type caller struct {
	peer
	once   sync.Once
	origin Origin
}

// Origin is what the process that asks at the socket is.
type Origin struct {
	// Run is why it counts as part of an agent's run, or as such a part as far as
	// can be told; "" if it does not.
	Run string
	// Before reports whether it is the command line of the version before this one,
	// which has no key to send. nil: it is not.
	Before func() bool
}

// from asks what the peer is. judge may be nil: then nobody can tell.
func (c *caller) from(judge func(proc.Proc) Origin) Origin {
	c.once.Do(func() {
		switch {
		case c.gone:
			c.origin.Run = "it has ended, so that nobody can tell what it was"
		case judge != nil && c.process.Pid != 0:
			c.origin = judge(c.process)
		}
	})
	return c.origin
}

// ConnContext is the http.Server's hook of that name for the unix socket: it asks
// the kernel who is at the other end, once a connection. What does not come through
// it is refused by the Guard of the Socket door.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, peerKey{}, &caller{peer: peerOf(c)})
}

func peerOf(c net.Conn) peer {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return peer{err: fmt.Errorf("a %T is no unix socket", c)}
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return peer{err: err}
	}
	return peerOfRaw(raw)
}

func peerOfRaw(raw syscall.RawConn) (p peer) {
	if err := raw.Control(func(fd uintptr) { p = peerAt(int(fd)) }); err != nil {
		p.err = err
	}
	return p
}

// errNoPeer: the connection did not come through ConnContext.
var errNoPeer = errors.New("the connection does not say who is at its other end")

// callerFrom returns the process at the other end and what its user is called in
// logs.
func callerFrom(ctx context.Context) (c *caller, remote string) {
	c, ok := ctx.Value(peerKey{}).(*caller)
	if !ok {
		c = &caller{peer: peer{err: errNoPeer}}
	}
	if c.err != nil {
		return c, "unknown user"
	}
	return c, "uid " + strconv.FormatUint(uint64(c.uid), 10)
}

// users are the names of the users that were let in: this process' own and root.
type users struct{ names sync.Map }

func (u *users) name(uid uint32) string {
	if name, ok := u.names.Load(uid); ok {
		return name.(string)
	}
	name := UserName(int(uid))
	u.names.Store(uid, name)
	return name
}

// UserName returns what the host calls a user: "uid 1234" if it has no name for it.
// The environment, where a process may say anything, is not asked.
func UserName(uid int) string {
	id := strconv.Itoa(uid)
	if found, err := user.LookupId(id); err == nil && found.Username != "" {
		return found.Username
	}
	return "uid " + id
}

// admit returns who is at the other end of the socket, or why it may not come in.
func (u *users) admit(p peer) (Principal, *Refused) {
	switch own := os.Geteuid(); {
	case p.err != nil:
		return Principal{}, refused(forbidden, http.StatusForbidden, "this socket is for the user with id %d and root alone: %v", own, p.err)
	case p.uid != 0 && int64(p.uid) != int64(own):
		return Principal{}, refused(forbidden, http.StatusForbidden, "this socket is for the user with id %d and root alone, and you are the user with id %d; ask for a token (`scheduler token create`)", own, p.uid)
	}
	return Principal{Name: u.name(p.uid), Role: Operate, Door: Socket}, nil
}
