package cli

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/internal/config"
	"github.com/agentsched/agentsched/internal/sandbox"
	"github.com/agentsched/agentsched/internal/terminaltest"
	"github.com/agentsched/agentsched/job"
)

// onHost has the program look at a host that is not this one.
func onHost(m *Main, host sandbox.Host) {
	m.prog.host = func(context.Context) sandbox.Host { return host }
	m.prog.standard = func(context.Context) error { return host.Standard }
}

// hosts are those that cannot hold runs at some level.
func lackingHosts() map[string]sandbox.Host {
	landlock := &sandbox.Problem{What: "the kernel has no Landlock", Mend: "update it to Linux 5.13 or newer"}
	namespaces := &sandbox.Problem{What: "no user namespace can be made", Mend: "sudo sysctl -w user.max_user_namespaces=15000", Command: []string{"sysctl", "-w", "user.max_user_namespaces=15000"}}
	bwrap := &sandbox.Problem{What: "bubblewrap is not installed", Mend: "sudo apt-get install bubblewrap", Command: []string{"apt-get", "install", "bubblewrap"}}
	darwin := &sandbox.Problem{What: "darwin/arm64 has no sandbox: only Linux on amd64 and arm64 has one"}
	return map[string]sandbox.Host{
		"without Landlock":   {Landlock: landlock, Standard: landlock, Bubblewrap: namespaces, Namespaces: namespaces},
		"without namespaces": {ABI: 6, Namespaces: namespaces, Bubblewrap: namespaces},
		"without bwrap":      {ABI: 6, Bubblewrap: bwrap},
		"macOS":              {System: "darwin/arm64", Landlock: darwin, Notify: darwin, Standard: darwin, Namespaces: darwin, Bubblewrap: darwin},
	}
}

// TestLevelsAreListed: doctor shows each level with why it is not there and what mends it.
func TestLevelsAreListed(t *testing.T) {
	for name, host := range lackingHosts() {
		cfg := config.Default()
		if host.Standard == nil {
			cfg.Sandbox.Level = job.SandboxStandard
		}
		findings := examineSandbox(&cfg, host)
		var out bytes.Buffer
		if err := printLevels(&out, findings); err != nil {
			t.Fatal(err)
		}
		printNotHeld(&out, findings)
		text := out.String()
		for level, err := range map[string]error{"strict": host.Bubblewrap, "standard": host.Standard, "none": nil} {
			var line string
			for l := range strings.Lines(text) {
				if strings.HasPrefix(l, level+" ") {
					line = l
				}
			}
			if err == nil {
				if !strings.Contains(line, "yes") {
					t.Errorf("%s: %s is listed as %q", name, level, line)
				}
				continue
			}
			what, mend := problemOf(err)
			if !strings.Contains(line, "no ") || !strings.Contains(line, what) || !strings.Contains(line, mend) {
				t.Errorf("%s: %s is listed as %q, want %q and %q", name, level, line, what, mend)
			}
		}
		if told := strings.Contains(text, "what programs miss"); told != (host.Standard == nil) {
			t.Errorf("%s: what programs miss is told: %v\n%s", name, told, text)
		}
	}
}

// atTerminal runs a program with the arguments at a terminal, and types the answers to its questions.
func atTerminal(t *testing.T, m *Main, args []string, typed ...string) (screen string, code int) {
	t.Helper()
	x := terminaltest.Open(t, 300, 50)
	defer x.Close()
	x.Watch()
	m.con.stdin, m.con.stderr = x.Slave, x.Slave
	ended := make(chan int, 1)
	go func() {
		ended <- m.run(append([]string{"--state", m.local.stateDir}, args...))
		x.Slave.Close() // whoever waits for a question sees that none comes
	}()
	mark := 0
	for _, answer := range typed {
		mark = x.Await(mark, "[y/N] ")
		x.Press(answer + "\n")
	}
	code = <-ended
	return x.Screen(), code
}

// TestConsent: runs are allowed without a sandbox only by a person's yes, which is written into the configuration and leaves
// all else there as it was.
func TestConsent(t *testing.T) {
	host := lackingHosts()["without Landlock"]
	host.Bubblewrap = &sandbox.Problem{What: "no bwrap"} // nothing to run
	jobs := filepath.Join(t.TempDir(), "jobs.yaml")
	if err := os.WriteFile(jobs, []byte("jobs: [{id: a, worker: shell, instructions: 'true', workspace: {isolation: none}}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const before, after = "# mine\nsandbox:\n  # what\n  read: [/srv]\n", "# mine\nsandbox:\n  level: none\n  # what\n  read: [/srv]\n"
	for name, c := range map[string]struct {
		args   []string
		answer []string // none: no terminal
		code   int
		want   string
		says   []string
	}{
		"doctor, yes":   {[]string{"doctor", "--fix"}, []string{"yes"}, exitOK, after, []string{"the kernel has no Landlock", "update it to Linux 5.13", "all that you may", "written to "}},
		"doctor, no":    {[]string{"doctor", "--fix"}, []string{""}, exitOK, before, []string{"the kernel has no Landlock", "runs are refused", "scheduler doctor --fix", "sandbox: {level: none}"}},
		"doctor, piped": {[]string{"doctor", "--fix"}, nil, exitUsage, before, []string{"the kernel has no Landlock", "update it to Linux 5.13", "scheduler doctor --fix", "sandbox: {level: none}"}},
		"run, no":       {[]string{"run", jobs}, []string{"n"}, exitUsage, before, []string{"the kernel has no Landlock", "scheduler doctor --fix", "sandbox: {level: none}"}},
		"run, piped":    {[]string{"run", jobs}, nil, exitUsage, before, []string{"the kernel has no Landlock", "update it to Linux 5.13", "scheduler doctor --fix", "sandbox: {level: none}"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			real, file := filepath.Join(dir, "real.yaml"), filepath.Join(dir, "config.yaml")
			if err := os.WriteFile(real, []byte(before), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(real, 0o640); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink("real.yaml", file); err != nil {
				t.Fatal(err)
			}
			var said bytes.Buffer
			m := newTestMain(t, &said)
			onHost(m, host)
			args := append([]string{"--config", file}, c.args...)
			var screen string
			var code int
			if c.answer == nil {
				m.con.stderr = &said
				code = m.run(append([]string{"--state", m.local.stateDir}, args...))
				screen = said.String()
			} else {
				screen, code = atTerminal(t, m, args, c.answer...)
			}
			if code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			for _, words := range c.says {
				if !strings.Contains(screen, words) {
					t.Errorf("%q is not said:\n%s", words, screen)
				}
			}
			info, err := os.Stat(file)
			if err != nil {
				t.Fatal(err)
			}
			if link, err := os.Readlink(file); err != nil || link != "real.yaml" || info.Mode().Perm() != 0o640 {
				t.Errorf("the file is %v, a link to %q, %v", info.Mode(), link, err)
			}
			if text, err := os.ReadFile(file); err != nil || string(text) != c.want {
				t.Errorf("the configuration is\n%s, %v", text, err)
			}
			if left, err := filepath.Glob(filepath.Join(dir, ".config-*")); err != nil || len(left) > 0 {
				t.Errorf("left behind: %q, %v", left, err)
			}
		})
	}
}

// TestConsentHolds: what was answered counts at once and is not asked again, and nobody is asked where the configuration,
// the state directory or the host have the answer.
func TestConsentHolds(t *testing.T) {
	file := filepath.Join(t.TempDir(), "new", "config.yaml")
	m := newTestMain(t, &bytes.Buffer{})
	onHost(m, lackingHosts()["macOS"])
	m.prog.configPath = file
	x := terminaltest.Open(t, 300, 50)
	defer x.Close()
	x.Watch()
	m.con.stdin, m.con.stderr = x.Slave, x.Slave
	x.Press("y\n")
	cfg := config.Default()
	if err := m.local.consent(t.Context(), &cfg); err != nil || cfg.Sandbox.Level != job.SandboxNone {
		t.Fatalf("the answer gave %q, %v", cfg.Sandbox.Level, err)
	}
	cfg, err := m.prog.loadConfig()
	if err != nil {
		t.Fatal(err)
	}
	m.con.stdin = nil // nobody could answer
	if err := m.local.consent(t.Context(), &cfg); err != nil || cfg.Sandbox.Level != job.SandboxNone {
		t.Errorf("with the new file: %q, %v", cfg.Sandbox.Level, err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the new file: %v, %v", info, err)
	}
	for name, set := range map[string]func(*config.Config){
		"a level":     func(c *config.Config) { c.Sandbox.Level = job.SandboxStrict },
		"the least":   func(c *config.Config) { c.Sandbox.Least = job.SandboxNone },
		"report mode": func(c *config.Config) { c.Sandbox.Mode = config.SandboxReport },
		"a host that can": func(*config.Config) {
			onHost(m, lackingHosts()["without bwrap"])
		},
	} {
		cfg := config.Default()
		set(&cfg)
		if err := m.local.consent(t.Context(), &cfg); err != nil {
			t.Errorf("with %s: %v", name, err)
		}
		onHost(m, lackingHosts()["macOS"])
	}
	before := m.local.stateDir
	if err := os.MkdirAll(before, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(before, "instance.json"), []byte(`{"version":1,"instance":"i1","created":"2026-01-01T00:00:00Z"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg = config.Default()
	if err := m.local.consent(t.Context(), &cfg); err != nil {
		t.Errorf("with a state directory from before: %v", err)
	}
}

// TestFixRunsCommand: what mends the host is shown and run only after a yes.
func TestFixRunsCommand(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("sudo may ask for a password")
	}
	for _, answer := range []string{"n", "y"} {
		mended := filepath.Join(t.TempDir(), "mended")
		m := newTestMain(t, &bytes.Buffer{})
		m.con.environ = os.Environ()
		lacking := sandbox.Host{ABI: 6, Bubblewrap: &sandbox.Problem{What: "bubblewrap is not installed", Mend: "sudo touch it", Command: []string{"touch", mended}}}
		m.prog.standard = func(context.Context) error { return nil }
		m.prog.host = func(context.Context) sandbox.Host {
			if _, err := os.Stat(mended); err == nil {
				return sandbox.Host{ABI: 6}
			}
			return lacking
		}
		screen, code := atTerminal(t, m, []string{"doctor", "--fix"}, answer)
		_, err := os.Stat(mended)
		if code != exitOK || (err == nil) != (answer == "y") || !strings.Contains(screen, "touch "+mended) || strings.Contains(screen, "has sandbox level strict now") != (answer == "y") {
			t.Errorf("answered %s: exit code %d, %v\n%s", answer, code, err, screen)
		}
	}
}
