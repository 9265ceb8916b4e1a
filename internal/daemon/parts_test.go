package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
)

// diary is what parts do, in order.
type diary struct {
	mu   sync.Mutex
	list []string
}

func (d *diary) add(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.list = append(d.list, fmt.Sprintf(format, args...))
}

func (d *diary) String() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return strings.Join(d.list, " ")
}

// fragile is a part that ends, with an error, whenever it is hit.
func (d *diary) fragile(name string) (Part, chan error) {
	hit := make(chan error)
	return Part{Name: name, Run: func(ctx context.Context) error {
		d.add("+%s", name)
		select {
		case err := <-hit:
			d.add("!%s", name)
			return err
		case <-ctx.Done():
			d.add("-%s", name)
			return nil
		}
	}}, hit
}

var errHit = errors.New("hit")

// TestRestForOne: the part that ends and those after it are started again, the
// others go on; at the end all are stopped in reverse order.
func TestRestForOne(t *testing.T) {
	for _, c := range []struct {
		hit  int
		with error
		want string
	}{
		{0, errHit, "+a +b +c !a -c -b +a +b +c -c -b -a"},
		{1, errHit, "+a +b +c !b -c +b +c -c -b -a"},
		{2, nil, "+a +b +c !c +c -c -b -a"},
	} {
		synctest.Test(t, func(t *testing.T) {
			var d diary
			var parts []Part
			var hits []chan error
			for _, name := range []string{"a", "b", "c"} {
				p, hit := d.fragile(name)
				// Of those that start together, each says so before the next.
				run, started := p.Run, len(hits)
				p.Run = func(ctx context.Context) error {
					time.Sleep(time.Duration(started) * time.Millisecond)
					return run(ctx)
				}
				parts, hits = append(parts, p), append(hits, hit)
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- RunParts(ctx, parts, zerolog.Nop()) }()
			time.Sleep(time.Second)
			hits[c.hit] <- c.with
			time.Sleep(time.Second)
			cause := errors.New("told to")
			cancel(cause)
			if err := <-ended; !errors.Is(err, cause) {
				t.Errorf("ended with %v", err)
			}
			if got := d.String(); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

// TestIntensity: a part that ends more often than is allowed within the time ends
// all; one that ends as often over a longer time does not.
func TestIntensity(t *testing.T) {
	for _, c := range []struct {
		every time.Duration
		ends  bool
	}{{time.Second, true}, {15 * time.Second, false}} {
		synctest.Test(t, func(t *testing.T) {
			var d diary
			steady, _ := d.fragile("steady")
			sick := Part{Name: "sick", Run: func(ctx context.Context) error {
				select {
				case <-time.After(c.every):
				case <-ctx.Done():
				}
				return errHit
			}}
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			err := RunParts(ctx, []Part{steady, sick}, zerolog.Nop())
			if got := errors.Is(err, errHit); got != c.ends || c.ends && !strings.HasPrefix(err.Error(), "sick ended") {
				t.Fatalf("with an end every %s: %v", c.every, err)
			}
			if got := d.list; !slices.Equal(got, []string{"+steady", "-steady"}) {
				t.Errorf("what it does not rely on: %q", got)
			}
		})
	}
}
