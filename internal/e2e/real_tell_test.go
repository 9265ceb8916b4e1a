package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/scriptmodel"
	"github.com/agentsched/agentsched/job"
)

// TestRealTell: what is said while a command runs is read by the same attempt, in the running turn where the program can; ten messages
// that four people say at once are read in the order in which they are stored. An interrupt ends the turn and its command and keeps the
// session, which goes on when it is told something.
func TestRealTell(t *testing.T) {
	eachTalker(t, "claude codex", func(k *talk) {
		script := scriptmodel.Play(k.waits("told"), k.waits("interrupted"), scriptmodel.Say("Gone on."))
		if k.kind == acpKind { // messages begin its next turn
			script = scriptmodel.Play(k.waits("told"), scriptmodel.Say("At first.")).Resuming(script.Turns[1:]...)
		}
		k.begin("10m", script)
		k.runs("wait.sh", 1)
		k.tell("word-0.")
		each(4, func(person int) {
			c := k.client()
			for i := person; i < 10; i += 4 {
				if _, err := c.Tell(k.t.Context(), "talk", api.Say{Text: fmt.Sprintf("word-%d.", i+1), By: fmt.Sprint("person-", person)}); err != nil {
					k.t.Error(err)
				}
			}
		})
		words := k.settled(func(m api.Message) bool { return m.State != api.MessageQueued || k.kind == acpKind })
		k.goOn("told")
		k.settled(func(m api.Message) bool { return m.State == api.MessageFolded && m.Attempt == 1 })
		k.runs(k.folder("interrupted"), 1)
		k.inOrder(words)

		if _, err := k.c.Interrupt(k.t.Context(), "talk", api.Interrupt{By: "ann"}); err != nil {
			k.fatalf("interrupt: %v", err)
		}
		var d api.JobDetail
		k.until("the job waits for somebody to go on", func() bool {
			d = k.show("talk")
			return d.Job.Held == job.HeldForWords
		})
		k.nothingRuns(d)
		k.goOn("interrupted")
		k.tell("go on with it")
		d = k.ends("Gone on.")
		if len(d.Attempts) != 2 || d.Attempts[0].Session != d.Attempts[1].Session || d.Job.Counted != 1 {
			k.fatalf("want two attempts of one session, of which one counts: %s", asJSON(k.t, d))
		}
		k.inOrder(append(words, "go on with it"))
	})
}

// settled blocks until all that the job was told is as it should be, and returns the words in their order.
func (k *talk) settled(as func(api.Message) bool) (words []string) {
	k.t.Helper()
	k.until("the messages are settled", func() bool {
		list, err := k.c.Messages(k.t.Context(), "talk")
		words = nil
		for _, m := range list.Messages {
			if words = append(words, m.Text); !as(m) {
				return false
			}
		}
		return err == nil && len(words) == 11
	})
	return words
}

// inOrder checks that the last that the model was told has each of the words once, in their order.
func (k *talk) inOrder(words []string) {
	k.t.Helper()
	k.mu.Lock()
	last := k.heard[len(k.heard)-1]
	k.mu.Unlock()
	at := -1
	for _, w := range words {
		next := strings.Index(last, w)
		if next <= at || strings.Count(last, w) != 1 {
			k.fatalf("the model was not told %q once each, in this order: %q is %d times at %d", words, w, strings.Count(last, w), next)
		}
		at = next
	}
}
