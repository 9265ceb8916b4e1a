package agentcore

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentsched/agentsched/internal/proc"
	"github.com/agentsched/agentsched/permit"
)

// TestFuseWatch: in virtual time.
func TestFuseWatch(t *testing.T) {
	const validity, margin = time.Minute, 30 * time.Second
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		clock := func() time.Duration { return time.Hour + time.Since(began) }
		words := make(chan fuseWord)
		blows := make(chan []proc.Kin, 100)
		watch := fuseWatch{blow: func(spare []proc.Kin) { blows <- spare }}
		go watch.run(words, clock)
		defer close(words)

		word := fuseWord{Lease: permit.Lease{Validity: validity, Margin: margin}}
		renew := func() {
			word.Renewed = clock()
			words <- word
		}
		wait := func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
		}
		want := func(when string, least, most int) (spared []proc.Kin) {
			t.Helper()
			synctest.Wait()
			blown := len(blows)
			if blown < least || blown > most {
				t.Errorf("%s: it has blown %d times, want %d to %d", when, blown, least, most)
			}
			for range blown {
				spared = <-blows
			}
			return spared
		}

		wait(time.Hour)
		want("before it was told anything", 0, 0)
		for range 100 {
			renew()
			wait(validity)
		}
		renew()
		want("renewed", 0, 0)
		wait(validity + margin - time.Millisecond)
		want("a moment before the end", 0, 0)
		wait(time.Millisecond)
		want("at the end", 1, 1)
		wait(10 * time.Second)
		want("with every look after the end", 9, 10)

		// A word that is no renewal renews nothing.
		word.Spare = map[string]proc.Kin{"a": {Cgroup: "/a"}}
		words <- word
		wait(time.Second)
		if spared := want("after another word", 1, 2); len(spared) != 1 || spared[0].Cgroup != "/a" {
			t.Errorf("it has spared %v", spared)
		}

		renew()
		wait(validity)
		want("renewed again", 0, 0)
		word.Lease = permit.Lease{}
		words <- word
		wait(time.Hour)
		want("at rest", 0, 0)
		word.Lease = permit.Lease{Validity: validity}
		renew()
		wait(validity)
		want("without a margin", 1, 1)
	})
}

// TestFuseWords: what is not a core's ends a fuse: it cannot know any more what to do.
func TestFuseWords(t *testing.T) {
	for name, tt := range map[string]struct {
		said  string
		words int
	}{
		"nothing":       {"", 0},
		"half a word":   {`{"renewed":1}` + "\n" + `{"renewed":`, 1},
		"another's":     {`{"renewed":1}` + "\n" + "hello\n" + `{"renewed":2}` + "\n", 1},
		"of a newer":    {`{"renewed":1,"more":2}` + "\n", 1},
		"several words": {strings.Repeat(`{"renewed":1}`+"\n", 3), 3},
	} {
		t.Run(name, func(t *testing.T) {
			words := make(chan fuseWord, 10)
			if readFuseWords(strings.NewReader(tt.said), words); len(words) != tt.words {
				t.Errorf("%d words, want %d", len(words), tt.words)
			}
		})
	}
}
