package audit

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/api"
)

// writerVariable makes this test program a process that records for ever in the
// folder that it names.
const writerVariable = "AGENTSCHED_TEST_AUDIT_WRITER"

func writeForEver(dir string) {
	l, err := Open(dir, Options{MaxSize: 20_000, Keep: 1000})
	if err != nil {
		panic(err)
	}
	for i := 0; ; i++ {
		l.Note(request(i))
		if i%10 == 0 {
			if err := l.Record(context.Background(), Entry{Who: api.AuditWho{Name: "ann"}, Action: "marked", Target: strconv.Itoa(i)}); err != nil {
				panic(err)
			}
			fmt.Println(i)
		}
	}
}

// A process that is killed while it writes leaves a log that is whole up to there,
// with everything that was acknowledged, and the next one goes on.
func TestKilledWriter(t *testing.T) {
	dir := t.TempDir()
	self, err := os.Executable()
	must(t, err)
	for round := range 4 {
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), writerVariable+"="+dir)
		out, err := cmd.StdoutPipe()
		must(t, err)
		must(t, cmd.Start())
		lines := bufio.NewScanner(out)
		latest := ""
		for range 7 + 13*round {
			if !lines.Scan() {
				t.Fatal("the writer ended")
			}
			latest = lines.Text()
		}
		must(t, cmd.Process.Kill())
		for lines.Scan() { // what it said until it was dead
			latest = lines.Text()
		}
		if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
			t.Fatalf("the writer ended with %v", err)
		}
		l := open(t, dir, Options{})
		must(t, l.Close())
		whole(t, dir)
		marked, _, err := Last(dir, 2, func(r *api.AuditRecord) bool { return r.Action == "marked" })
		must(t, err)
		found := false
		for _, r := range marked {
			found = found || r.Target == latest
		}
		if !found {
			t.Errorf("round %d: %s was acknowledged; the last are %+v", round, latest, marked)
		}
	}
}
