package e2e

import (
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
)

// TestDoorLinkOfAnotherUser: a dashboard's link stands in the arguments of the program
// that opens it. Another user of the host who reads it there does not get in by it.
func TestDoorLinkOfAnotherUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can be somebody else")
	}
	b := newBench(t)
	b.hand(1234)
	r := b.serve()
	var link struct{ URL string }
	if made := b.socketDoor().ask(http.MethodPost, "/v1/ui-links", ""); made.status != http.StatusCreated || json.Unmarshal([]byte(made.body), &link) != nil {
		t.Fatalf("a link: %d %s", made.status, made.body)
	}
	base, path, _ := strings.Cut(strings.TrimPrefix(link.URL, "http://"), "/")
	as := func(user int) *door {
		dialer := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
			var failed error
			err := c.Control(func(fd uintptr) { failed = syscall.Fchown(int(fd), user, -1) }) // as if that user had made it
			return errors.Join(err, failed)
		}}
		return b.doorTo("http://"+base, dialer.DialContext)
	}
	if got := as(4321).ask(http.MethodGet, "/"+path, ""); got.status != http.StatusForbidden || !strings.Contains(got.body, "not yours") {
		t.Errorf("another user is answered %d %s", got.status, got.body)
	}
	if got := as(1234).ask(http.MethodGet, "/"+path, ""); got.status != http.StatusOK {
		t.Errorf("its own user is answered %d %s", got.status, got.body)
	}
	r.stop()
}
