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
)

type peerKey struct{}

// peer is the process at the other end of a unix socket.
type peer struct {
	uid uint32
	err error // why it is not known
}

// ConnContext is the http.Server's hook of that name for the unix socket: it asks
// the kernel who is at the other end, once a connection. What does not come through
// it is refused by the Guard of the Socket door.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, peerKey{}, peerOf(c))
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
	err := raw.Control(func(fd uintptr) { p.uid, p.err = peerUID(int(fd)) })
	if err != nil {
		p.err = err
	}
	return p
}

// errNoPeer: the connection did not come through ConnContext.
var errNoPeer = errors.New("the connection does not say who is at its other end")

// peerFrom returns the user at the other end and what it is called in logs.
func peerFrom(ctx context.Context) (p peer, remote string) {
	p, ok := ctx.Value(peerKey{}).(peer)
	if !ok {
		p.err = errNoPeer
	}
	if p.err != nil {
		return p, "unknown user"
	}
	return p, "uid " + strconv.FormatUint(uint64(p.uid), 10)
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
