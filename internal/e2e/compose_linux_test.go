package e2e

// The compose file, played on this host: its command lines, configurations, secrets and health checks as they are, each
// service in a mount namespace that shows it what its container would have.

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/agentsched/agentsched/internal/pgtest"
	"github.com/agentsched/agentsched/job"
)

type composed struct {
	Services map[string]struct {
		Command     []string
		Environment map[string]string
		Secrets     []any
		Configs     []struct{ Source, Target string }
		Health      struct{ Test []string } `yaml:"healthcheck"`
	}
	Configs map[string]struct{ Content string }
}

// container is a service: a bench whose state directory it has.
type container struct {
	*bench
	args, health []string
}

// contain returns a service of the file. hosts is what its /etc/hosts says, address what it listens on.
func (f *composed) contain(t *testing.T, name, secrets, hosts, address string) *container {
	t.Helper()
	s, ok := f.Services[name]
	if !ok {
		t.Fatalf("the compose file has no %s", name)
	}
	c := &container{bench: newBench(t), args: append([]string{"--state", "/state"}, s.Command...), health: s.Health.Test[1:]}
	if err := os.Mkdir(c.state, 0o700); err != nil {
		t.Fatal(err)
	}
	c.write(filepath.Join(c.dir, "hosts"), hosts)
	box := []string{"bwrap", "--die-with-parent", "--ro-bind", "/usr", "/usr", "--ro-bind", "/etc", "/etc", "--ro-bind", filepath.Join(c.dir, "hosts"), "/etc/hosts",
		"--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--ro-bind", programs, programs, "--ro-bind", programs, "/usr/local/bin", "--bind", c.state, "/state"}
	for _, dir := range []string{"bin", "sbin", "lib", "lib64"} {
		if target, err := os.Readlink("/" + dir); err == nil {
			box = append(box, "--symlink", target, "/"+dir)
		} else if _, err := os.Stat("/" + dir); err == nil {
			box = append(box, "--ro-bind", "/"+dir, "/"+dir)
		}
	}
	for _, x := range s.Secrets {
		source, target := fmt.Sprint(x), fmt.Sprint(x)
		if m, ok := x.(map[string]any); ok {
			source, target = m["source"].(string), m["target"].(string)
		}
		box = append(box, "--ro-bind-try", filepath.Join(secrets, source), "/run/secrets/"+target)
	}
	for _, x := range s.Configs {
		// Containers have addresses of their own, and here they share this host's.
		c.write(filepath.Join(c.dir, x.Source), strings.ReplaceAll(f.Configs[x.Source].Content, "0.0.0.0", address))
		box = append(box, "--ro-bind", filepath.Join(c.dir, x.Source), x.Target)
	}
	c.within, c.env = box, []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/state", "LANG=C.UTF-8"}
	for k, v := range s.Environment {
		c.env = append(c.env, k+"="+v)
	}
	return c
}

// inside runs a command in the container to its end.
func (c *container) inside(args ...string) (string, error) {
	cmd := exec.CommandContext(c.t.Context(), c.within[0], append(c.within[1:], args...)...)
	cmd.Env = c.env
	out, err := cmd.Output()
	if exit, ok := err.(*exec.ExitError); ok {
		err = fmt.Errorf("%w\n%s%s", err, out, exit.Stderr)
	}
	return string(out), err
}

// up starts the service, and waits until its health check passes.
func (c *container) up() *run {
	c.t.Helper()
	r := newRun(c.bench, c.args)
	c.runs = append(c.runs, r)
	var last error
	defer func() {
		if c.t.Failed() {
			c.t.Logf("health: %v\n%s", last, r.stderr.String())
		}
	}()
	c.eventually("the health check passes", func() bool {
		select {
		case <-r.ended:
			r.fatalf("it has ended: %v", r.cmd.ProcessState)
		default:
		}
		_, last = c.inside(c.health...)
		return last == nil
	})
	return r
}

func (r *run) down() {
	r.b.t.Helper()
	r.signal(syscall.SIGTERM)
	<-r.ended
}

// TestComposePlayed follows docs/fleet.md: secrets, tokens, the services; a job runs on a node, and another one when the
// leader is gone.
func TestComposePlayed(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("mounts need root")
	}
	text, err := os.ReadFile("../../deploy/compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var f composed
	if err := yaml.Unmarshal(text, &f); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/fleet.md")
	if err != nil {
		t.Fatal(err)
	}
	makes := regexp.MustCompile(`(?s)<<'EOF'\n(.*?\n)EOF\n`).FindSubmatch(page)
	token := regexp.MustCompile(`run --rm -T (scheduler-1) (.* token create) \$n (.*) > secrets`).FindSubmatch(page)
	if makes == nil || token == nil {
		t.Fatal("docs/fleet.md does not make the secrets and the tokens")
	}
	secrets := t.TempDir()
	sh := exec.CommandContext(t.Context(), "sh", "-eu")
	sh.Dir, sh.Stdin, sh.Env = secrets, strings.NewReader(string(makes[1])), []string{"PATH=" + programs + ":" + os.Getenv("PATH"), "HOME=" + t.TempDir()}
	if out, err := sh.CombinedOutput(); err != nil {
		t.Fatalf("make the secrets: %v\n%s", err, out)
	}

	at := func(n int) string {
		return fmt.Sprintf("127.%d.%d.%d", 20+os.Getpid()%200, 1+os.Getpid()/200%200, 100+n)
	}
	hosts := fmt.Sprintf("127.0.0.1 localhost\n%s scheduler-1 schedulers\n%s scheduler-2 schedulers\n%s postgres\n", at(1), at(2), at(3))
	password, err := os.ReadFile(filepath.Join(secrets, "postgres-password"))
	if err != nil {
		t.Fatal(err)
	}
	server := pgtest.Start(t)
	if _, err := server.NewDatabase(t.Context()); err != nil { // and with it the role
		t.Fatal(err)
	}
	if err := server.Exec(t.Context(), "postgres", "ALTER ROLE agentsched PASSWORD '"+strings.TrimSpace(string(password))+"'", "CREATE DATABASE agentsched OWNER agentsched ENCODING 'UTF8' TEMPLATE template0"); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", at(3)+":5432")
	if err != nil {
		t.Fatal(err)
	}
	pgtest.NewRelayAt(t, l, func() (net.Conn, error) { return net.Dial("tcp", server.Address()) })

	all := map[string]*container{}
	for i, name := range []string{"scheduler-1", "scheduler-2", "node-1", "node-2"} {
		all[name] = f.contain(t, name, secrets, hosts, at(i+1))
	}
	one, two := all["scheduler-1"], all["scheduler-2"]
	for _, n := range []string{"node-1", "node-2"} {
		args := append([]string{"scheduler", "--state", "/state"}, strings.Fields(string(token[2]))...)
		out, err := one.inside(slices.Concat(args, []string{n}, strings.Fields(string(token[3])))...)
		if err != nil {
			t.Fatalf("make a token: %v", err)
		}
		one.write(filepath.Join(secrets, n+".token"), out)
	}
	runs := map[string]*run{}
	for _, name := range []string{"scheduler-1", "scheduler-2", "node-1", "node-2"} {
		runs[name] = all[name].up()
	}
	probesAnswer(t, at(1))
	one.ended("first")
	runs["scheduler-1"].down()
	two.ended("second")
	for _, name := range []string{"node-1", "node-2", "scheduler-2"} {
		runs[name].down()
	}
	for _, c := range all {
		c.noProcess()
	}
}

// ended submits a job to the scheduler, and waits until it has run on a node.
func (c *container) ended(name job.Name) {
	c.t.Helper()
	c.submitThere(c.jobsOf("website", string(name)+".yaml", shell(string(name), nil, "echo done", nil)))
	c.eventually("the job ends", func() bool { return c.show(string(name)).Job.State.Terminal() })
	j := c.show(string(name))
	if j.Job.State != job.Completed || len(j.Attempts) != 1 || !strings.HasPrefix(j.Attempts[0].Node, "node-") {
		c.t.Errorf("%s: %s", name, asJSON(c.t, j))
	}
}

// submitThere submits a file by the scheduler's socket, as soon as one leads.
func (c *container) submitThere(file string) {
	c.t.Helper()
	var errs string
	c.eventually("the job is taken", func() bool {
		_, text, code := c.command("submit", file)
		errs = text
		return code == 0
	})
	if c.t.Failed() {
		c.t.Log(errs)
	}
}

// probesAnswer asks what the probes of the Kubernetes manifests ask.
func probesAnswer(t *testing.T, address string) {
	t.Helper()
	text, err := os.ReadFile("../../deploy/kubernetes/scheduler.yaml")
	if err != nil {
		t.Fatal(err)
	}
	paths := regexp.MustCompile(`httpGet: {path: ([^,]+),`).FindAllSubmatch(text, -1)
	if len(paths) != 3 {
		t.Fatalf("%d probes", len(paths))
	}
	// As the kubelet: by the address, without looking at the certificate.
	h := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer h.CloseIdleConnections()
	for _, p := range paths {
		resp, err := h.Get("https://" + address + ":7433" + string(p[1]))
		if err != nil {
			t.Error(err)
			continue
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("%s answers %s", p[1], resp.Status)
		}
	}
}
