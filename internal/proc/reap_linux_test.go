package proc

import (
	"os"
	"testing"
)

// A helper that has exited and was not waited for yet stands first among what the kernel shows to the reaper.
func TestLeadersAreReapedPastAHelper(t *testing.T) {
	h := newHost(t, "")
	var helper *os.Process
	var c *child
	err := h.onSpawner(func() (err error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if helper, err = os.StartProcess("/bin/true", []string{"true"}, &os.ProcAttr{}); err == nil {
			c = h.register(helper.Pid, nil)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	h.awaitExit(helper.Pid)
	tr := start(t, h, script(t.Name(), "exit 3"))
	if got := tr.waitExited(); got.Code != 3 {
		t.Errorf("exit %v, want code 3", got)
	}
	h.mu.Lock()
	_, err = helper.Wait()
	h.unregister(helper.Pid, c)
	h.mu.Unlock()
	if err != nil {
		t.Error(err)
	}
	tr.stop(Stages{})
}
