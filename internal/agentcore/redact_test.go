package agentcore_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/internal/agentcore"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
)

// logText is a log that a test reads at the end.
type logText struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// TestSecretsAreNotKept lets workers print what the environment has of secrets, in
// several spellings, to both streams, in their answer, in the command that checks
// their work and in its failure, and looks at every event, outcome, log line and
// file that is left.
func TestSecretsAreNotKept(t *testing.T) {
	const secret, named = `correct"horse/battery staple`, "swordfish-swordfish"
	var body strings.Builder
	for i := range 5 {
		fmt.Fprintf(&body, "%064x\n", i)
	}
	pem := "-----BEGIN PRIVATE KEY-----\n" + body.String() + "-----END PRIVATE KEY-----"
	lookup := map[string]string{"PLANTED_TOKEN": secret, "GATEWAY": named}
	var log logText
	c := start(t, func(cfg *agentcore.Config) {
		cfg.Environ = append(os.Environ(), "PLANTED_TOKEN="+secret, "GATEWAY="+named)
		cfg.Lookup = func(name string) (string, bool) { v, ok := lookup[name]; return v, ok }
		cfg.Log = zerolog.New(&log)
	})
	c.hello()
	c.configure(func(s *ipc.Configure) {
		s.Workers = map[job.WorkerKind]job.WorkerSettings{"shell": {KeyEnv: "GATEWAY"}}
	})
	script := `
[ "$(printf %s "$PLANTED_TOKEN" | wc -c)" = 28 ] || exit 3
printf 'plain %s\n' "$PLANTED_TOKEN"
echo "error $PLANTED_TOKEN $GATEWAY" >&2
printf '{"token":"%s"}\n' "$(printf %s "$PLANTED_TOKEN" | sed 's/"/\\"/g')"
printf %s "x$PLANTED_TOKEN" | base64
printf '%s' "$PLANTED_TOKEN" | od -An -tx1 | tr -d ' \n'; echo
printf '` + strings.ReplaceAll(pem, "\n", `\n`) + `\n'
echo https://me:` + "pass" + `word@example.org
echo "end $PLANTED_TOKEN"
`
	id := job.ID("a")
	c.run(id, spec(script, func(s *job.Spec) {
		s.Env = []string{"PLANTED_TOKEN"}
		s.Verify = `echo "checked $PLANTED_TOKEN"; echo "and $GATEWAY" >&2; test ! -e fail # ` + named
	}))
	good := c.outcome()
	if !good.Succeeded() {
		t.Fatalf("outcome %+v", good)
	}
	if a, ok := good.Artifact(job.ArtifactStdout); !ok || a.Bytes == 0 {
		t.Errorf("no log: %+v", good.Artifacts)
	}
	c.run("b", spec(`echo "$PLANTED_TOKEN"; exit 1`, func(s *job.Spec) { s.Env = []string{"PLANTED_TOKEN"} }))
	failed := c.outcome()
	c.run("c", spec(`touch fail`, func(s *job.Spec) {
		s.Env, s.Verify = []string{"PLANTED_TOKEN"}, `echo "no: $PLANTED_TOKEN"; exit 1 # `+named
	}))
	refused := c.outcome()
	c.end()

	forbidden := map[string]string{
		"plain": secret, "JSON": `correct\"horse`, "base64": base64.StdEncoding.EncodeToString([]byte("x" + secret))[4:30], "hex": fmt.Sprintf("%x", secret),
		"the settings' key": named, "the private key": fmt.Sprintf("%064x", 3), "the password in a URL": "pass" + "word@",
	}
	look := func(where string, text []byte) {
		for what, s := range forbidden {
			if bytes.Contains(text, []byte(s)) {
				t.Errorf("%s: the secret as %s is there", where, what)
			}
		}
	}
	close(c.events)
	said := false
	for e := range c.events {
		text, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		look("event", text)
		look("text of an event", []byte(e.Text+e.Command))
		said = said || e.Text == "plain [redacted:PLANTED_TOKEN]"
	}
	if !said {
		t.Error("the marker is not in the events")
	}
	for _, o := range []job.Outcome{good, failed, refused} {
		text, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		look("outcome", text)
		look("message", []byte(o.Message+o.Answer))
	}
	if !strings.Contains(refused.Message, "no: [redacted:PLANTED_TOKEN]") {
		t.Errorf("message %q", refused.Message)
	}
	look("log", log.text.Bytes())
	files := 0
	err := filepath.WalkDir(c.state, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		look(path, text)
		files++
		return err
	})
	if err != nil || files < 4 {
		t.Errorf("%d files were looked at: %v", files, err)
	}
	if !strings.Contains(good.Answer, "end [redacted:PLANTED_TOKEN]") {
		t.Errorf("the answer: %q", good.Answer)
	}
}
