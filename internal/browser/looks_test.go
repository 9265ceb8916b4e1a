package browser

import "testing"

// TestLooks opens all pages in light, dark and on a phone, has axe look for what keeps
// somebody out, and leaves pictures.
func TestLooks(t *testing.T) {
	have := needTools(t)
	d := newDaemon(t, have.node)
	if err := d.start(); err != nil {
		t.Fatal(err)
	}
	b := openBrowser(t, have)
	for _, name := range []string{"keyboard", "looks"} {
		t.Run(name, func(t *testing.T) { b.play(t, d, name, nil) })
	}
	t.Logf("pictures of all pages are in %s", have.screenshots)
}
