package e2e

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/scriptmodel"
	"github.com/agentsched/agentsched/job"
)

// planted is a secret, and where it may stand nevertheless.
type planted struct {
	name, value string
	// inQueue: it is in a job's instructions, with which the job has to run.
	inQueue bool
}

// forms are how a secret may be written down.
func (p *planted) forms() map[string]string {
	quoted, _ := json.Marshal(p.value) // of a string, which never fails
	list := map[string]string{
		"plain": p.value, "in JSON": strings.Trim(string(quoted), `"`), "percent-encoded": url.QueryEscape(p.value),
		"in hexadecimal": hex.EncodeToString([]byte(p.value)),
	}
	// In the middle of a text, base64 begins at any of three places.
	for shift, name := range []string{"in base64", "in base64, one on", "in base64, two on"} {
		text := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", shift) + p.value))
		list[name] = text[4*((shift+2)/3) : len(text)-4]
	}
	return list
}

// TestDoorSecrets: what is secret is in no file, no answer, no log and no trace,
// wherever it was planted: in the environment, in a prompt, in what a program and a
// tool have printed, in a token of the scheduler's own and in the collector's.
func TestDoorSecrets(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := newCollector(t)
	secrets := []planted{
		{name: "printed", value: `pl4nted"In/The+Env&9c1f7e02`}, {name: "of a tool", value: "s3cret-of-a-tool-5b7c8d9e"},
		{name: "in a prompt", value: "ghp_" + "16C7e42F292c6912E7710c838347Ae178B4a", inQueue: true},
		{name: "of the collector", value: "0tlp-header-a1b2c3d4e5f6"},
	}
	b.env = append(b.env, "DEPLOY_TOKEN="+secrets[0].value, "DATABASE_PASSWORD="+secrets[1].value)
	b.listenTCP()
	b.config["log"] = obj{"level": "debug"}
	b.config["telemetry"] = obj{"otlp": obj{"endpoint": c.URL, "headers": obj{"authorization": "Bearer " + secrets[3].value}}}
	b.kind("agent", `p=$DATABASE_PASSWORD
echo '{"type":"text","text":"I found '$p'"}'
echo '{"type":"command","phase":"start","id":"1","command":"psql --password='$p'"}'
echo '{"type":"command","phase":"end","id":"1","exit_code":0,"ms":4,"output":"connected with '$p'"}'
echo "to standard error: $p" >&2
echo '{"type":"result","status":"completed","answer":"the password is '$p'"}'`)
	b.kind("fails", `p=$DATABASE_PASSWORD
echo "no login with $p: $(printf %s "$p" | base64)" >&2
echo '{"type":"result","status":"failed","message":"no login with '$p'"}'`)
	token := b.token("planted", "operate")
	secrets = append(secrets, planted{name: "a token of the scheduler", value: token})

	r := b.serve()
	base, _ := b.link()
	tcp := b.tcpDoor(base, "")
	env := obj{"env": []string{"DEPLOY_TOKEN", "DATABASE_PASSWORD"}}
	all := `echo "plain: $DEPLOY_TOKEN"; echo "plain: $DEPLOY_TOKEN" >&2; printf %s "$DEPLOY_TOKEN" | base64
printf 'and %s' "$DEPLOY_TOKEN" | base64; printf 'x%s' "$DEPLOY_TOKEN" | base64 -w 0; printf %s "$DEPLOY_TOKEN" | od -An -v -tx1 | tr -d ' \n'; echo
printf '{"token":"%s"}\n' "$(printf %s "$DEPLOY_TOKEN" | sed 's/"/\\"/g')"`
	jobs := []obj{
		with(shell("prints", nil, all, nil), env),
		with(shell("dies", nil, all+"; exit 3", obj{"max_attempts": 1}), env),
		with(on("agent", "agent", nil), env), with(on("fails", "fails", obj{"limits": obj{"max_attempts": 1}}), env),
		with(on("prompt", "agent", obj{"instructions": "Push with " + secrets[2].value + "."}), env),
		with(shell("killed", nil, all+"; echo begun; "+until(b.folder("go")), nil), env),
	}
	b.submit(b.jobs(jobs...))
	r.await("the one that is killed", onText("killed", "begun"))
	r.killCore()
	r.awaitCore(2)
	b.write(b.folder("go"), "")
	r.awaitTimes(len(jobs), "the end of a job", func(u *api.Update) bool { return u.Kind == api.UpdateJob && u.Entry.Terminal() })
	bearer := []string{"Authorization", "Bearer " + token}
	said := map[string]string{}
	for _, j := range jobs {
		name := j["id"].(string)
		for _, path := range []string{"", "/events?limit=1000", "/attempts/1/artifacts/stdout", "/attempts/1/artifacts/stderr"} {
			said["GET of "+name+path] = withoutInstructions(t, tcp.ask(http.MethodGet, "/v1/jobs/"+name+path, "", bearer...).body)
		}
	}
	for _, path := range []string{"/metrics", "/v1/overview", "/v1/timeline", "/v1/dead-letters"} {
		said[path] = withoutInstructions(t, tcp.ask(http.MethodGet, path, "", bearer...).body)
	}
	// Requests that are refused, and one that is not right, with secrets in them.
	tcp.ask(http.MethodPost, "/v1/pause", `{"scope":"`+secrets[1].value+`"}`, bearer...)
	tcp.ask(http.MethodPost, "/v1/pause", `{}`, "Authorization", "Bearer "+token+"x")
	tcp.ask(http.MethodGet, "/v1/me?token="+token, "")
	for _, args := range [][]string{{"logs", "prints", "--json"}, {"logs", "agent", "--json"}, {"show", "agent", "--json"}, {"show", "dies"}, {"logs", "killed"}, {"dlq", "show", "dies"}, {"status"}, {"crashes"}} {
		out, errs, _ := b.command(args...)
		said["scheduler "+strings.Join(args, " ")] = out + errs
	}
	r.stop()
	b.soundState()
	out, _, _ := b.command("audit", "tail", "-n", "1000", "--json")
	said["the audit log"] = out
	said["standard error of the server"] = r.stderr.String()
	said["what the server printed"] = asJSON(t, r.updates)
	c.mu.Lock()
	said["what the collector was sent"] = c.raw.String()
	c.mu.Unlock()
	if !strings.Contains(said["scheduler logs prints --json"], "[redacted:DEPLOY_TOKEN]") || !strings.Contains(said["GET of agent"], "[redacted:DATABASE_PASSWORD]") {
		t.Errorf("nothing was planted:\n%s\n%s", said["scheduler logs prints --json"], said["GET of agent"])
	}

	b.search(secrets, said)
}

// search wants no secret to be in any file of the state directory, nor in any of
// the texts.
func (b *bench) search(secrets []planted, said map[string]string) {
	b.t.Helper()
	look := func(where, text string, s *planted) {
		for form, value := range s.forms() {
			if at := strings.Index(text, value); at >= 0 {
				b.t.Errorf("the secret %s is in %s, %s: …%q…", s.name, where, form, text[max(0, at-150):min(len(text), at+len(value)+50)])
			}
		}
	}
	files := 0
	err := filepath.WalkDir(b.state, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && path != b.state {
			return nil // a process that runs has removed it
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		name := strings.TrimPrefix(path, b.state+"/")
		// A worker program's own transcripts are what it goes on from.
		if parts := strings.Split(name, "/"); parts[0] == "jobs" && len(parts) > 2 && strings.HasPrefix(parts[2], "home-") {
			return nil
		}
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		files++
		for i := range secrets {
			if !secrets[i].inQueue || !strings.HasPrefix(name, "queue.db") {
				look(name, string(text), &secrets[i])
			}
		}
		return nil
	})
	if err != nil {
		b.t.Fatal(err)
	}
	for where, text := range said {
		for i := range secrets {
			look(where, text, &secrets[i])
		}
	}
	b.t.Logf("%d files and %d texts were searched", files, len(said))
}

// TestDoorSecretsOfCLIs: the same of what the worker CLIs tell of commands that have
// printed a secret, and of what a model says.
func TestDoorSecretsOfCLIs(t *testing.T) {
	eachCLI(t, "claude", func(t *testing.T, kind job.WorkerKind) {
		b := newBench(t)
		secrets := []planted{{name: "printed", value: "pl4nted-in-the-env-9c1f7e02"}, {name: "of the model", value: "s3cret-of-a-model-5b7c8d9e"}}
		b.env = append(b.env, "DEPLOY_TOKEN="+secrets[0].value, "DATABASE_PASSWORD="+secrets[1].value)
		b.config["log"] = obj{"level": "debug"}
		b.use(kind)
		b.play("leaks", scriptmodel.Play(scriptmodel.Run("echo it is $DEPLOY_TOKEN"), scriptmodel.Say("It is "+secrets[1].value+".")))
		r := b.serve()
		b.submit(b.jobs(b.task("leaks", kind, "leaks", obj{"capabilities": []string{"read", "run_commands"}, "env": []string{"DEPLOY_TOKEN"}})))
		r.end("leaks", job.RunCompleted)
		r.stop()
		b.soundState()
		said := map[string]string{"what the server printed": asJSON(t, r.updates), "its standard error": r.stderr.String()}
		for _, args := range [][]string{{"logs", "leaks", "--json"}, {"show", "leaks", "--json"}, {"audit", "tail", "--json"}} {
			out, errs, code := b.command(args...)
			if code != 0 {
				b.fatalf("%v: exit code %d\n%s", args, code, errs)
			}
			said["scheduler "+strings.Join(args, " ")] = out + errs
		}
		if shown := said["scheduler show leaks --json"]; !strings.Contains(shown, "[redacted:DATABASE_PASSWORD]") {
			t.Errorf("the model has said nothing: %s", shown)
		}
		b.search(secrets, said)
	})
}

// withoutInstructions takes out of an answer what jobs were told to do.
func withoutInstructions(t *testing.T, text string) string {
	t.Helper()
	var v any
	if json.Unmarshal([]byte(text), &v) != nil {
		return text // no JSON
	}
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			delete(v, "instructions")
			for _, x := range v {
				walk(x)
			}
		case []any:
			for _, x := range v {
				walk(x)
			}
		}
	}
	walk(v)
	return asJSON(t, v)
}
