package server

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/agentsched/agentsched/api"
)

// TestEncoder: what is remembered is what would be written, also after more updates
// than are remembered; a gap has the id of another update and is not taken for it.
func TestEncoder(t *testing.T) {
	var c encoder
	check := func(u api.Update) {
		t.Helper()
		want, err := json.Marshal(u)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if got, err := c.update(&u); err != nil || string(got) != string(want) {
				t.Fatalf("%s, %v; want %s", got, err, want)
			}
		}
	}
	for i := range 3 * maxEncoded {
		check(api.Update{ID: fmt.Sprint("boot-", i), Kind: api.UpdateCore, Text: fmt.Sprint(i)})
		check(api.Update{ID: fmt.Sprint("boot-", i), Kind: api.UpdateGap, Missed: i})
		check(api.Update{Kind: api.UpdateCore, Text: fmt.Sprint("no id ", i)})
	}
	check(api.Update{ID: "boot-0", Kind: api.UpdateCore, Text: "0"})
	if len(c.texts) != maxEncoded {
		t.Errorf("%d are remembered, want %d", len(c.texts), maxEncoded)
	}
}

// TestKeyIDs: ids of one key sort as its jobs do, and are no other's.
func TestKeyIDs(t *testing.T) {
	a, b := key{given: true}, key{given: true}
	b.sum[31] = 1 // the beginnings are alike
	seen := map[string]bool{a.id(-1): true, b.id(-1): true}
	last := ""
	for n := range 10_000 {
		id := a.id(n)
		if id <= last {
			t.Fatalf("id %d, %s, is not after %s", n, id, last)
		}
		if last = id; seen[id] || seen[b.id(n)] {
			t.Fatalf("id %d, %s, is another's, too", n, id)
		}
		seen[id], seen[b.id(n)] = true, true
	}
	if a.id(maxKeyed-1) <= a.id(maxKeyed-2) || len(seen) != 20_002 {
		t.Errorf("%d ids", len(seen))
	}
}
