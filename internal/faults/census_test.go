//go:build linux

package faults

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentsched/agentsched/internal/faults/act"
	"github.com/agentsched/agentsched/internal/sandbox"
)

// census knows which processes of workers live: each keeps a connection for as
// long as it does, and the kernel closes that before anybody can learn that the
// process is dead. A process is counted before it does anything.
type census struct {
	plan     *plan
	socket   string // what the puppets are given, see act.Address
	listener net.Listener
	serving  sync.WaitGroup
	marks    *marks

	mu      sync.Mutex            // guards what follows
	hosts   map[string]*fleetNode // by instance; nil where there is but one host
	spans   map[string]*span      // by run
	window  time.Duration         // the longest that a run lived after a thaw, beside its successor
	live    map[*member]bool
	leaders map[string]int // by run: workers that ever were there, which is 1
	jobs    map[string]string
	done    map[string]int   // by run: how often the work was done
	used    map[string]int64 // by run: tokens said to be consumed
	seen    int              // processes ever
	most    int              // runs at once, at most
	faults  []string         // what must not have been
	release chan struct{}    // closed when a Wait may end
	moving  int              // if above 0, a Wait is to be made again elsewhere
	move    chan struct{}    // closed and replaced when that begins
}

// member is a process of a worker.
type member struct {
	act.Word
	conn  net.Conn
	pid   int
	mu    sync.Mutex
	pidfd int // of a connection by TCP, whose end may be told a moment later than the process's; else -1
}

func newCensus(p *plan, path string, m *marks) (*census, error) {
	network, address := "unix", path
	if p.Level == sandbox.Standard { // whose runs reach no Unix sockets but their own
		network, address = "tcp", "127.0.0.1:0"
	}
	l, err := net.Listen(network, address)
	if err != nil {
		return nil, err
	}
	if network == "tcp" {
		path = l.Addr().String() + "@" + path
	}
	c := &census{
		plan: p, socket: path, listener: l, marks: m, spans: map[string]*span{}, live: map[*member]bool{}, leaders: map[string]int{}, jobs: map[string]string{},
		done: map[string]int{}, used: map[string]int64{}, release: make(chan struct{}), move: make(chan struct{}),
	}
	c.serving.Go(c.accept)
	return c, nil
}

// settle returns when all is heard that was said, which nobody adds to: every process must be dead. The last words and
// ends may be read later than a process is seen to be gone.
func (c *census) settle() {
	c.listener.Close()
	c.serving.Wait()
}

// close ends the census; every process must be dead.
func (c *census) close() {
	c.listener.Close()
	c.mu.Lock()
	for m := range c.live {
		m.conn.Close()
	}
	c.mu.Unlock()
	c.serving.Wait()
}

func (c *census) accept() {
	for {
		conn, err := c.listener.Accept()
		if err != nil {
			return
		}
		c.serving.Go(func() { c.serve(conn) })
	}
}

func (c *census) serve(conn net.Conn) {
	m := &member{conn: conn, pidfd: -1}
	defer conn.Close()
	defer c.leave(m)
	ended := make(chan struct{})
	defer close(ended)
	lines := bufio.NewReader(conn)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var w act.Word
		if err := json.Unmarshal(line, &w); err != nil {
			c.wrong("a worker says %q: %v", line, err)
			return
		}
		if w.Hello {
			if m.Word = w; !m.known() || !c.join(m) {
				return // it has ended since
			}
		} else {
			c.hear(m, w)
		}
		c.marks.add()
		if w.Ready {
			c.serving.Go(func() {
				select {
				case <-c.release:
					_, _ = conn.Write([]byte("heard\n"))
				case <-c.mayNotStay():
					_, _ = conn.Write([]byte(act.Again))
				case <-ended:
				}
			})
			continue
		}
		if _, err := conn.Write([]byte("heard\n")); err != nil {
			return
		}
	}
}

// mayNotStay returns a channel that is closed when a Wait must go elsewhere.
func (c *census) mayNotStay() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.moving > 0 {
		now := make(chan struct{})
		close(now)
		return now
	}
	return c.move
}

// driveAway has every Wait made again elsewhere until stop is called: a core
// that is drained waits for its jobs' end.
func (c *census) driveAway() (stop func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.moving++
	close(c.move)
	c.move = make(chan struct{})
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.moving--
	}
}

// known finds the process at the other end. By TCP it is what the process says, in our pid namespace.
func (m *member) known() bool {
	if _, tcp := m.conn.(*net.TCPConn); tcp {
		var err error
		m.pid = m.Pid
		m.pidfd, err = unix.PidfdOpen(m.pid, 0)
		return err == nil
	}
	raw, err := m.conn.(syscall.Conn).SyscallConn()
	if err == nil {
		_ = raw.Control(func(fd uintptr) {
			if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
				m.pid = int(cred.Pid)
			}
		})
	}
	return true
}

// dead reports whether the process has ended: all that it had open is closed.
func (m *member) dead() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.pidfd >= 0 {
		n, _ := unix.Poll([]unix.PollFd{{Fd: int32(m.pidfd), Events: unix.POLLIN}}, 0)
		return n > 0
	}
	raw, err := m.conn.(syscall.Conn).SyscallConn()
	if err != nil {
		return true
	}
	hup := false
	if err := raw.Control(func(fd uintptr) {
		set := []unix.PollFd{{Fd: int32(fd)}}
		n, err := unix.Poll(set, 0)
		for errors.Is(err, unix.EINTR) {
			n, err = unix.Poll(set, 0)
		}
		hup = n == 1 && set[0].Revents&(unix.POLLHUP|unix.POLLERR) != 0
	}); err != nil {
		return true
	}
	return hup
}

func (c *census) wrong(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wrongLocked(format, args...)
}

func (c *census) wrongLocked(format string, args ...any) {
	c.faults = append(c.faults, time.Now().UTC().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

// join counts a process and looks whether it may be there. It is not counted, and join reports false, if it has ended:
// what it said may be read late, when others are there in its place.
func (c *census) join(m *member) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sweepLocked()
	if m.dead() { // looked at after the others, which lived when it had said that it is there
		return false
	}
	c.live[m] = true
	c.seen++
	if m.Role == act.Leader {
		if c.leaders[m.Run]++; c.leaders[m.Run] > 1 {
			c.wrongLocked("run %s of %s has a second worker", m.Run, m.Job)
		}
	}
	c.jobs[m.Run] = m.Job
	if c.spans[m.Run] == nil {
		c.spans[m.Run] = newSpan(m)
	}
	c.checkLocked(m)
	return true
}

// sweepLocked notes who has ended, whose own goroutine has not noticed yet.
func (c *census) sweepLocked() {
	for m := range c.live {
		if m.dead() {
			c.goneLocked(m)
		}
	}
}

// checkLocked compares the runs that have a live process with every limit.
func (c *census) checkLocked(last *member) {
	runs := map[string]*member{}
	for m := range c.live {
		if c.excusedLocked(m) {
			c.overtakenLocked(m)
		} else {
			runs[m.Run] = m
		}
	}
	c.most = max(c.most, len(runs))
	p := c.plan
	over := func(n, limit int, what string) {
		if limit > 0 && n > limit {
			c.wrongLocked("%d runs at once %s, and the limit is %d: %s", n, what, limit, describe(c.live, last))
		}
	}
	byHost := map[*fleetNode]int{}
	byKey := map[string]int{}
	byKind, byTenant, byFolder, byJob := map[string]int{}, map[string]int{}, map[string]int{}, map[string]int{}
	for _, m := range runs {
		j := p.job(m.Job)
		byKind[m.Kind]++
		byTenant[j.Tenant]++
		byJob[m.Job]++
		if host := c.hostLocked(m.Run); host != nil {
			byHost[host]++
		}
		if j.Folder != "" {
			byFolder[j.Folder]++
		}
		if j.Key != "" {
			byKey[j.Key]++
		}
	}
	over(len(runs), p.Max, "in all")
	for kind, n := range byKind {
		over(n, p.PerKind[kind], "on workers "+kind)
	}
	for tenant, n := range byTenant {
		over(n, p.PerTenant, "of tenant "+tenant)
	}
	for folder, n := range byFolder {
		if above, _, below := strings.Cut(folder, "/"); below {
			n += byFolder[above] // who works in a folder works in what is below it
		}
		over(n, 1, "in folder "+folder)
	}
	for key, n := range byKey {
		over(n, 1, "of the jobs with key "+key+", which run one after the other,")
	}
	for name, n := range byJob {
		over(n, 1, "of job "+name)
	}
	for host, n := range byHost {
		over(n, host.slots, "on node "+host.name)
	}
}

// describe lists processes, the one that came last first.
func describe(live map[*member]bool, last *member) string {
	var lines []string
	for m := range live {
		state := ""
		if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", m.pid)); err == nil {
			if _, after, ok := strings.Cut(string(stat), ") "); ok {
				state = after[:1]
			}
		}
		line := fmt.Sprintf("%s %s of %s (pid %d, state %q)", m.Role, m.Run, m.Job, m.pid, state)
		if m == last {
			line = " " + line + ", who came last"
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return strings.Join(lines, "; ")
}

func (c *census) hear(m *member, w act.Word) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w.Done {
		c.done[m.Run]++
	}
	c.used[m.Run] += w.Used
}

func (c *census) leave(m *member) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.goneLocked(m)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.pidfd >= 0 {
		unix.Close(m.pidfd)
		m.pidfd = -1
	}
}

// alive lists who lives, and notes who has ended.
func (c *census) alive() []*member {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sweepLocked()
	all := slices.Collect(maps.Keys(c.live))
	slices.SortFunc(all, func(a, b *member) int { return a.pid - b.pid })
	return all
}

// signal sends a live process a signal: the connection tells that the pid is
// still its own when the pidfd was opened.
func (m *member) signal(sig syscall.Signal) error {
	fd, err := unix.PidfdOpen(m.pid, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if m.dead() {
		return syscall.ESRCH
	}
	return unix.PidfdSendSignal(fd, sig, nil, 0)
}

// errors returns what was wrong so far.
func (c *census) errors() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.faults)
}
