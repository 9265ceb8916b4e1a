package job

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestValidName(t *testing.T) {
	for _, good := range []string{"a", "Z", "0", "fix-login", "a.b_c-d", "v1.2", strings.Repeat("x", 64), "a-", "a_", "lock", "a.locks"} {
		if err := ValidName(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{
		"", strings.Repeat("x", 65), "-a", "_a", ".a", "a..b", "..", "a.", "a.lock", "a b", "a/b", "a\\b", "a\n", "\x00", "ü", "a@{b", "a~1", "a^", "a:b", "a?", "a*", "a[b", "\xff", "٣",
	} {
		if ValidName(bad) == nil {
			t.Errorf("%q is taken for a valid name", bad)
		}
	}
}

func TestUsageAdd(t *testing.T) {
	one := Usage{1, 2, 3, 4, 5, 0.5, true, 6, 7, 8}
	if got, want := one.Add(one), (Usage{2, 4, 6, 8, 10, 1, true, 12, 14, 16}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	priced := Usage{InputTokens: 1, CostUSD: 0.5, CostKnown: true}
	free := Usage{InputTokens: 1, CostKnown: true}
	unpriced := Usage{OutputTokens: 1}
	partly := Usage{InputTokens: 1, CostUSD: 0.5}
	none := Usage{}
	steps := Usage{Steps: 1}
	for _, c := range []struct {
		what  string
		u, v  Usage
		known bool
	}{
		{"two known", priced, priced, true},
		{"known and free", priced, free, true},
		{"known and nothing", priced, none, true},
		{"known and no tokens", priced, steps, true},
		{"known and unpriced", priced, unpriced, false},
		{"known and in part", priced, partly, false},
		{"nothing at all", none, none, false},
		{"unpriced and nothing", unpriced, none, false},
	} {
		for _, sum := range []Usage{c.u.Add(c.v), c.v.Add(c.u)} {
			if sum.CostKnown != c.known {
				t.Errorf("%s: cost known %v, want %v", c.what, sum.CostKnown, c.known)
			}
		}
	}
}

// TestUsageAddLaws: the order in which attempts are summed does not matter.
func TestUsageAddLaws(t *testing.T) {
	usage := rapid.Custom(func(r *rapid.T) Usage {
		n := func(what string) int64 { return int64(rapid.IntRange(0, 3).Draw(r, what)) }
		return Usage{InputTokens: n("in"), OutputTokens: n("out"), CostUSD: float64(n("cost")) / 4, CostKnown: rapid.Bool().Draw(r, "known"), Steps: n("steps")}
	})
	rapid.Check(t, func(r *rapid.T) {
		a, b, c := usage.Draw(r, "a"), usage.Draw(r, "b"), usage.Draw(r, "c")
		if x, y := a.Add(b), b.Add(a); x != y {
			r.Fatalf("a+b = %+v, b+a = %+v", x, y)
		}
		if x, y := a.Add(b).Add(c), a.Add(b.Add(c)); x != y {
			r.Fatalf("(a+b)+c = %+v, a+(b+c) = %+v", x, y)
		}
		if a.Add(b).Tokens() != a.Tokens()+b.Tokens() {
			r.Fatalf("tokens of %+v and %+v do not add up", a, b)
		}
	})
}

func TestDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{"0s": 0, "90s": 90 * time.Second, "1h30m": 90 * time.Minute, "1.5ms": 1500 * time.Microsecond} {
		var d Duration
		if err := d.UnmarshalText([]byte(text)); err != nil || d.Std() != want {
			t.Errorf("%q: got %v, %v; want %v", text, d, err, want)
		}
	}
	for _, text := range []string{"", "5", "-1s", "1 s", "soon", "9999999999h"} {
		d := Duration(time.Minute)
		if err := d.UnmarshalText([]byte(text)); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%q: got %v, %v; want an error that quotes it", text, d, err)
		}
		if d != Duration(time.Minute) {
			t.Errorf("%q: refused, and the value is %v now", text, d)
		}
	}
	rapid.Check(t, func(r *rapid.T) {
		d := Duration(rapid.Int64Range(0, math.MaxInt64).Draw(r, "nanoseconds"))
		text, err := json.Marshal(d)
		if err != nil {
			r.Fatal(err)
		}
		var back Duration
		if err := json.Unmarshal(text, &back); err != nil || back != d {
			r.Fatalf("%s reads back as %v, %v", text, back, err)
		}
	})
}

func TestNewIDs(t *testing.T) {
	last := ID("")
	for range 1000 {
		id := NewID()
		if len(id) != 36 || id[14] != '7' || id <= last {
			t.Fatalf("id %q after %q, want a larger UUIDv7", id, last)
		}
		last = id
	}
	if got, want := RunTag("i", "j", 3), "i/j/3"; got != want {
		t.Errorf("run tag %q, want %q", got, want)
	}
}
