package access

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// A user who can open the socket's file and is neither its owner nor root is
// refused by what the kernel says.
func TestSocketRefusesAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can be another user; TestPeersThatAreAdmitted decides the same without the kernel")
	}
	path, refusals := serveSocket(t, ConnContext)
	for p, mode := range map[string]os.FileMode{path: 0o666, filepath.Dir(path): 0o755, filepath.Dir(filepath.Dir(path)): 0o755} {
		if err := os.Chmod(p, mode); err != nil {
			t.Fatal(err)
		}
	}
	dial := func(ctx context.Context) (c net.Conn, err error) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			// On Linux a thread has its user for itself. It ends with this goroutine,
			// since it is not unlocked.
			runtime.LockOSThread()
			const nobody = 65534
			if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), nobody, ^uintptr(0)); errno != 0 {
				err = errno
				return
			}
			c, err = new(net.Dialer).DialContext(ctx, "unix", path)
		}()
		<-done
		return c, err
	}
	resp := over(t, dial, "http://scheduler/v1/me")
	if p := problemIn(t, resp); resp.StatusCode != 403 || p.Name() != forbidden {
		t.Errorf("%+v", p)
	}
	if r := <-refusals; r.Remote != "uid 65534" || r.Status != 403 {
		t.Errorf("told %+v", r)
	}
}
