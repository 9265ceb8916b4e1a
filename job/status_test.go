package job

import "testing"

// TestWaiting: what a reason is called is read back as that reason, so that a
// sentence in the store tells it.
func TestWaiting(t *testing.T) {
	words := map[string]bool{}
	for _, r := range WaitingReasons() {
		if words[r.Words()] || r.Words() == string(r) && r != WaitApproval {
			t.Errorf("reason %s is called %q", r, r.Words())
		}
		words[r.Words()] = true
		for _, text := range []string{"", "2 of 2: all taken"} {
			w := Waiting{r, text}
			if got, ok := ParseWaiting(w.String()); !ok || got != w {
				t.Errorf("%q is read as %+v, %v", w, got, ok)
			}
		}
	}
	for _, text := range []string{"", "waits for a slot", "waiting for", "waiting for godot: he comes"} {
		if w, ok := ParseWaiting(text); ok {
			t.Errorf("%q is read as %+v", text, w)
		}
	}
	if got := (Waiting{WaitSlot, "2 of 2 slots are taken"}).String(); got != "waiting for a slot: 2 of 2 slots are taken" {
		t.Error(got)
	}
}
