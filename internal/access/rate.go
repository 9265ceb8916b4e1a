package access

import (
	"container/list"
	"math"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// maxClients bounds how many clients are told apart at once. The one that was seen
// the longest ago is forgotten, and begins anew.
const maxClients = 10_000

// buckets is a token bucket for each client.
type buckets struct {
	mu    sync.Mutex
	byKey map[string]*list.Element
	order *list.List // of *bucket; the one seen last in front
}

type bucket struct {
	key     string
	limiter *rate.Limiter
	missed  int
}

func newBuckets() *buckets { return &buckets{byKey: map[string]*list.Element{}, order: list.New()} }

// take takes a token from the client's bucket. wait is 0 if there was one, else how
// long it takes until there is; missed is how often there was none since there last
// was one, this time included.
func (b *buckets) take(key string, limit rate.Limit, burst int) (wait time.Duration, missed int) {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.get(key, limit, burst)
	if c.limiter.Limit() != limit {
		c.limiter.SetLimitAt(now, limit)
	}
	if c.limiter.Burst() != burst {
		c.limiter.SetBurstAt(now, burst)
	}
	r := c.limiter.ReserveN(now, 1)
	if wait = r.DelayFrom(now); wait > 0 {
		r.CancelAt(now)
		c.missed++
		return wait, c.missed
	}
	missed, c.missed = c.missed, 0
	return 0, missed
}

func (b *buckets) get(key string, limit rate.Limit, burst int) *bucket {
	if e, ok := b.byKey[key]; ok {
		b.order.MoveToFront(e)
		return e.Value.(*bucket)
	}
	if b.order.Len() >= maxClients {
		last := b.order.Back()
		delete(b.byKey, last.Value.(*bucket).key)
		b.order.Remove(last)
	}
	c := &bucket{key: key, limiter: rate.NewLimiter(limit, burst)}
	b.byKey[key] = b.order.PushFront(c)
	return c
}

// clientOf is the key of a client that says not who it is: its address, or for IPv6
// its network, within which a host has as many addresses as it likes.
func clientOf(remote string) string {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return remote
	}
	addr := at.Addr().Unmap().WithZone("")
	if addr.Is6() && !addr.IsLoopback() {
		if net, err := addr.Prefix(64); err == nil {
			return net.String()
		}
	}
	return addr.String()
}

// seconds is a wait as Retry-After has it.
func seconds(wait time.Duration) string {
	return strconv.Itoa(max(1, int(math.Ceil(wait.Seconds()))))
}
