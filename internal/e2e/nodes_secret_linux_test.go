package e2e

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/agentsched/agentsched/job"
)

// TestNodesSecrets: what a node's run is given as a secret, and prints, reaches neither the scheduler nor its store, in no form; the
// node's spool does not hold it either. Another node, that is not granted it, does not give it.
func TestNodesSecrets(t *testing.T) {
	t.Parallel()
	secrets := []planted{{name: "of node one", value: `pl4nted"On/The+Node&7d2e9b31`}}
	b, base, r := newQueue(t, func(b *bench) { b.config["log"] = obj{"level": "debug"} })
	one := b.nodeBeside("one")
	file := one.folder("deploy-token")
	one.write(file, secrets[0].value+"\n")
	one.config["secrets"] = obj{"DEPLOY_TOKEN": obj{"file": file, "as": "variable"}}
	one.config["log"] = obj{"level": "debug"}
	one.up(base)
	r.awaitNode("one")
	two := b.node("two", base)
	r.awaitNode("two")
	all := `echo "plain: $DEPLOY_TOKEN"; echo "plain: $DEPLOY_TOKEN" >&2; printf %s "$DEPLOY_TOKEN" | base64
printf 'and %s' "$DEPLOY_TOKEN" | base64; printf %s "$DEPLOY_TOKEN" | od -An -v -tx1 | tr -d ' \n'; echo
printf '{"token":"%s"}\n' "$(printf %s "$DEPLOY_TOKEN" | sed 's/"/\\"/g')"`
	granted := func(node string, j obj) obj {
		return with(j, obj{"secrets": []string{"DEPLOY_TOKEN"}, "node": obj{"name": node}})
	}
	b.submit(b.jobs(
		granted("one", shell("prints", nil, all, nil)),
		granted("one", shell("dies", nil, all+"; exit 3", obj{"max_attempts": 1})),
		granted("one", shell("held", nil, all+"; echo begun; "+until(b.folder("go")), nil)),
		granted("two", shell("elsewhere", nil, all, obj{"max_attempts": 1})),
	))
	r.end("prints", job.RunCompleted)
	r.end("dies", job.RunFailed)
	r.end("elsewhere", job.RunFailed)
	r.await("the one that is held", onText("held", "begun"))
	r.killAll() // what the node tells meanwhile lies in its spool
	one.search(secrets, nil)
	r = b.serve()
	r.awaitNode("one")
	b.write(b.folder("go"), "")
	r.end("held", job.RunCompleted)
	said := map[string]string{}
	for _, args := range [][]string{{"logs", "prints", "--json"}, {"logs", "held", "--json"}, {"show", "prints", "--json"}, {"show", "dies"}, {"show", "elsewhere"}, {"nodes", "show", "one", "--json"}} {
		out, errs, _ := b.command(args...)
		said["scheduler "+strings.Join(args, " ")] = out + errs
	}
	if !strings.Contains(said["scheduler logs prints --json"], "[redacted:DEPLOY_TOKEN]") {
		t.Errorf("nothing was planted:\n%s", said["scheduler logs prints --json"])
	}
	if o := b.last(b.show("elsewhere")); o == nil || o.Class != job.Config || !strings.Contains(o.Message, "DEPLOY_TOKEN") {
		t.Errorf("the job whose node has no such secret: %s", asJSON(t, o))
	}
	for _, n := range []*nodeBench{one, two} {
		n.run.signal(syscall.SIGTERM)
		n.run.exit(0)
	}
	r.stop()
	if kept, _ := filepath.Glob(filepath.Join(b.state, "jobs", "*", "1", "stdout")); len(kept) < 3 {
		t.Errorf("the logs that the scheduler has are %v", kept)
	}
	b.search(secrets, said)
	one.search(secrets, nil)
}
