package egress

import (
	"fmt"
	"net/netip"
	"sync"
	"time"
)

// Protocol is how a client asked for a connection.
type Protocol string

const (
	Connect Protocol = "connect" // a tunnel
	HTTP    Protocol = "http"    // a plain request
	Direct  Protocol = "direct"  // none of the two; see Proxy.Forward
)

// Record tells of one connection, or of those beyond Config.MaxRecords together.
type Record struct {
	Protocol Protocol
	Host     string     // in lower case; "" if what was asked for is no host
	Port     uint16     // 0 as well
	Address  netip.Addr // that was dialled; invalid if none was, or an upstream proxy resolved the name
	Allowed  bool       // a connection that was allowed may still have failed: see Reason
	Reason   string     // why it was refused, failed or was ended; "" if its ends closed it
	Allow    string     // the entry that would allow a refused one; "" if none would
	Up, Down int64      // bytes to the host and from it, without those of TCP
	Start    time.Time
	Duration time.Duration
	// Unrecorded is how many connections, refused or not as Allowed says, have no record
	// of their own. Then only Reason, Up and Down are set besides.
	Unrecorded int
}

// records bounds how many are told. Allowed and refused ones are counted apart, so that
// neither hides the other.
type records struct {
	tell func(Record)
	max  int

	mu            sync.Mutex
	allowed, rest tally
}

type tally struct {
	told int
	more Record
}

func (rs *records) add(r Record) {
	if rs.tell == nil {
		return
	}
	rs.mu.Lock()
	t := &rs.rest
	if r.Allowed {
		t = &rs.allowed
	}
	t.told++
	told := t.told <= rs.max
	if !told {
		t.more.Allowed = r.Allowed
		t.more.Unrecorded++
		t.more.Up += r.Up
		t.more.Down += r.Down
	}
	rs.mu.Unlock()
	if told {
		rs.tell(r)
	}
}

// close tells of what has no record of its own.
func (rs *records) close() {
	rs.mu.Lock()
	more := []Record{rs.allowed.more, rs.rest.more}
	rs.mu.Unlock()
	for _, r := range more {
		if r.Unrecorded > 0 {
			r.Reason = fmt.Sprintf("more than %d of a kind", rs.max)
			rs.tell(r)
		}
	}
}
