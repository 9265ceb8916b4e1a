package agentcore

import (
	"cmp"
	"go/build"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/worker"
)

// aHome makes a user's home with the given folders, and returns it without links.
func aHome(t *testing.T, folders ...string) string {
	t.Helper()
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range folders {
		if err := os.MkdirAll(filepath.Join(home, f), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return home
}

func touch(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o700); err != nil {
		t.Fatal(err)
	}
}

func TestConfinedEnv(t *testing.T) {
	home := aHome(t, "go/pkg/mod/cache/download", ".rustup", ".pyenv", "elsewhere/mod/cache/download", "tools/volta")
	own := ConfinedFolders{Home: "/run-home", Temp: "/run-tmp", Cache: "/cache"}
	const absent = "\x00" // the variable must not be there
	for _, c := range []struct {
		name          string
		environ, core map[string]string
		goEnv         map[string]string
		want          map[string]string
	}{
		{"as usual", map[string]string{
			"PATH": "/bin", "LANG": "C.UTF-8", "TMPDIR": "/tmp", "XDG_CACHE_HOME": home + "/.cache", "XDG_RUNTIME_DIR": "/run/user/0", "SSH_AUTH_SOCK": "/run/agent",
			"DBUS_SESSION_BUS_ADDRESS": "unix:", "HTTPS_PROXY": "http://proxy", "no_proxy": "localhost", "GIVEN": "by the job",
		}, nil, nil, map[string]string{
			"HOME": "/run-home", "XDG_CONFIG_HOME": "/run-home/.config", "XDG_DATA_HOME": "/run-home/.local/share", "XDG_STATE_HOME": "/run-home/.local/state", "XDG_CACHE_HOME": "/run-home/.cache",
			"TMPDIR": "/run-tmp", "PATH": "/bin:/cache/go/bin:/cache/cargo/bin:/run-home/.local/bin", "LANG": "C.UTF-8", "GIVEN": "by the job",
			"XDG_RUNTIME_DIR": absent, "SSH_AUTH_SOCK": absent, "DBUS_SESSION_BUS_ADDRESS": absent, "HTTPS_PROXY": absent, "no_proxy": absent,
			"GOPATH": "/cache/go", "GOMODCACHE": "/cache/go-mod", "GOCACHE": "/cache/go-build", "GOFLAGS": absent, "GOROOT": absent, "GOTOOLCHAIN": absent,
			"GOPROXY":    "file://" + home + "/go/pkg/mod/cache/download,https://proxy.golang.org,direct",
			"CARGO_HOME": "/cache/cargo", "RUSTUP_HOME": home + "/.rustup", "npm_config_cache": "/cache/npm", "PIP_CACHE_DIR": "/cache/pip", "UV_CACHE_DIR": "/cache/uv",
			"PNPM_HOME": "/cache/pnpm", "YARN_CACHE_FOLDER": "/cache/yarn", "GRADLE_USER_HOME": "/cache/gradle", "COMPOSER_CACHE_DIR": "/cache/composer",
			"PYENV_ROOT": home + "/.pyenv", "VOLTA_HOME": absent, "NVM_DIR": absent,
			"MAVEN_OPTS": "-Duser.home=/run-home -Dmaven.repo.local=/cache/maven",
		}},
		{"the user's own settings", map[string]string{"GOFLAGS": "-mod=vendor", "MAVEN_OPTS": "-Xmx1g", "GOCACHE": home + "/.cache/go-build"},
			map[string]string{"GOMODCACHE": home + "/elsewhere/mod", "VOLTA_HOME": home + "/tools/volta", "RUSTUP_HOME": home + "/none"},
			map[string]string{"GOPROXY": "off", "GOFLAGS": "-race", "GOTOOLCHAIN": "local", "GOPATH": home + "/x"},
			map[string]string{
				"GOPROXY": "file://" + home + "/elsewhere/mod/cache/download,off", "GOFLAGS": "-mod=vendor", "GOTOOLCHAIN": "local", "GOPATH": "/cache/go", "GOCACHE": home + "/.cache/go-build",
				"VOLTA_HOME": home + "/tools/volta", "RUSTUP_HOME": absent, "MAVEN_OPTS": "-Xmx1g -Duser.home=/run-home -Dmaven.repo.local=/cache/maven",
			}},
		{"no modules", map[string]string{}, map[string]string{"GOPATH": "/nowhere:/else"}, map[string]string{"GOPROXY": "direct"}, map[string]string{"GOPROXY": "direct"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			environ := []string{"HOME=" + home}
			for name, value := range c.environ {
				environ = append(environ, name+"="+value)
			}
			before := slices.Clone(environ)
			env := ConfinedEnv(environ, own, func(name string) string {
				if name == "HOME" {
					return home
				}
				return c.core[name]
			}, c.goEnv)
			got := map[string]string{}
			for _, kv := range env {
				name, value, _ := strings.Cut(kv, "=")
				if _, twice := got[name]; twice {
					t.Errorf("%s is there twice", name)
				}
				got[name] = value
			}
			for name, want := range c.want {
				value, there := got[name]
				if want == absent && there || want != absent && (!there || value != want) {
					t.Errorf("%s is %q (there: %v), want %q", name, value, there, want)
				}
			}
			if !slices.Equal(environ, before) {
				t.Errorf("environ became %q", environ)
			}
		})
	}
}

func TestGoEnv(t *testing.T) {
	home := aHome(t)
	getenv := func(vars ...string) func(string) string {
		return func(name string) string {
			return (&worker.Task{Environ: append(vars, "HOME="+home)}).Getenv(name)
		}
	}
	if got := GoEnv(getenv()); len(got) > 0 {
		t.Errorf("without a file: %v", got)
	}
	touch(t, filepath.Join(home, ".config/go/env"), "# mine\nGOFLAGS=-buildvcs=false\nGOPROXY=\nCGO_ENABLED=0\nLD_PRELOAD=/evil\nbad\n")
	got := GoEnv(getenv())
	if len(got) != 2 || got["GOFLAGS"] != "-buildvcs=false" || got["CGO_ENABLED"] != "0" {
		t.Errorf("got %v", got)
	}
	for _, variable := range []string{"GOENV=off", "GOENV=/dev/zero", "XDG_CONFIG_HOME=" + home} {
		if got := GoEnv(getenv(variable)); len(got) > 0 {
			t.Errorf("%s: %v", variable, got)
		}
	}
	touch(t, filepath.Join(home, "giant"), strings.Repeat("x", maxGoEnv)+"\nGOFLAGS=x\n")
	if got := GoEnv(getenv("GOENV=" + filepath.Join(home, "giant"))); len(got) > 0 {
		t.Errorf("of a giant file: %v", got)
	}
}

func TestToolchains(t *testing.T) {
	home := aHome(t, "go/pkg/mod", "go/src", "go/bin", ".cargo/bin", ".rustup", ".local/bin", ".local/share/keyrings", ".local/lib", ".ssh", ".docker/bin", ".config/gh", "bin",
		"venv/bin", "venv/lib", "work/secret", "opt/node/bin", "opt/node/lib/node_modules/@openai/codex/bin", "opt/node/lib/node_modules/other", "loose", "agents/one/bin")
	touch(t, filepath.Join(home, ".cargo/credentials.toml"), "")
	codex := filepath.Join(home, "opt/node/lib/node_modules/@openai/codex/bin/codex.js")
	touch(t, codex, "#!/usr/bin/env node\n")
	touch(t, filepath.Join(home, "loose/agent"), "")
	touch(t, filepath.Join(home, "agent"), "")
	for link, to := range map[string]string{"opt/node/bin/codex": codex, ".sdkman": filepath.Join(home, ".ssh"), "linked": filepath.Join(home, "venv/bin")} {
		if err := os.Symlink(to, filepath.Join(home, link)); err != nil {
			t.Fatal(err)
		}
	}
	path := strings.Join([]string{
		"/usr/bin", home, home + "/..", home + "/bin", home + "/venv/bin", home + "/linked", home + "/.docker/bin", home + "/.config", home + "/.local", home + "/.local/bin/",
		home + "/opt/node/bin", home + "/none", "relative/bin", "", home + "/.cargo/bin",
	}, ":")
	getenv := func(name string) string {
		return map[string]string{"PATH": path, "SSL_CERT_FILE": home + "/.ssh/ca", "NODE_EXTRA_CA_CERTS": home + "/loose/agent", "GOROOT": home}[name]
	}
	got := Toolchains(home, getenv, home+"/opt/node/bin/codex", home+"/agent", home+"/missing", home+"/.ssh/agent")
	var want []string
	for _, p := range []string{
		".cargo/bin", ".local/bin", ".local/lib", ".rustup", "agent", "bin", "go/bin", "go/pkg/mod", "linked", "loose/agent", "opt/node", "opt/node/bin", "opt/node/bin/codex",
		"opt/node/lib/node_modules", "opt/node/lib/node_modules/@openai/codex/bin/codex.js", "venv", "venv/bin",
	} {
		want = append(want, filepath.Join(home, p))
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if got := Toolchains(home, func(string) string { return "" }, home+"/loose/agent"); !slices.Contains(got, filepath.Join(home, "loose")) {
		t.Errorf("a program without the files beside it: %q", got)
	}
	if got := programFiles(home + "/agents/one/bin/agent"); got != nil {
		t.Errorf("a program that is not there: %q", got)
	}
	touch(t, filepath.Join(home, "agents/one/bin/agent"), "") // it has no libraries
	if got, want := programFiles(home+"/agents/one/bin/agent"), []string{home + "/agents/one/bin/agent", home + "/agents/one/bin/agent", home + "/agents/one/bin"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestHidden checks what no folder that a run sees may hold.
func TestHidden(t *testing.T) {
	hidden := Hidden("/home/ann")
	for path, want := range map[string]bool{
		"/home/ann/.ssh": true, "/home/ann/.ssh/id_rsa": true, "/home/ann/.config/gh/hosts.yml": true, "/home/ann/.npmrc": true, "/home/ann/.cargo/credentials.toml": true,
		"/home/ann/.cargo/credentials": true, "/home/ann/.bash_history": true, "/home/ann/.config/google-chrome-beta": true, "/home/ann/.m2/settings-security.xml": true,
		"/etc/ssh/ssh_host_ed25519_key": true, "/etc/shadow": true, "/etc/shadow-": true, "/run/docker.sock": true, "/var/run": true,
		// what holds some
		"/": true, "/home": true, "/home/ann": true, "/home/ann/": true, "/home/ann/.config": true, "/home/ann/.cargo": true, "/etc": true, "/var": true,
		// what does not
		"/home/ann/.cargo/bin": false, "/home/ann/.sshfs": false, "/home/ann/.m2/repository": false, "/home/ann/work": false, "/home/bob/.ssh": false, "/usr": false,
		"/etc/ssh/ssh_host_ed25519_key.pub": false, "/etc/ssl/certs": false, "/home/ann/.local/share/uv/python": false,
	} {
		if got := showsHidden(path, hidden); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
	for _, pattern := range hidden {
		if _, err := filepath.Match(pattern, "x"); err != nil || !filepath.IsAbs(pattern) {
			t.Errorf("%s is no pattern of absolute paths: %v", pattern, err)
		}
	}
	for _, folder := range toolchains {
		if showsHidden(filepath.Join("/home/ann", folder), hidden) {
			t.Errorf("%s shows what is hidden", folder)
		}
	}
}

// TestConfinedGo has the real go fetch a dependency from the user's cache into the
// tenant's, without a network.
func TestConfinedGo(t *testing.T) {
	modules := cmp.Or(os.Getenv("GOMODCACHE"), filepath.Join(build.Default.GOPATH, "pkg", "mod")) // TestMain has another HOME
	if _, err := os.Stat(filepath.Join(modules, "cache/download/github.com/google/uuid")); err != nil {
		t.Fatalf("run `go mod download` first: %v", err)
	}
	sums, err := os.ReadFile("../../go.sum")
	if err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`github.com/google/uuid v\S+`).FindString(string(mod))
	base := t.TempDir()
	touch(t, filepath.Join(base, "work/go.mod"), "module example.com/m\n\ngo 1.24\n\nrequire "+version+"\n")
	touch(t, filepath.Join(base, "work/go.sum"), string(sums))
	own := ConfinedFolders{Home: filepath.Join(base, "home"), Temp: filepath.Join(base, "tmp"), Cache: filepath.Join(base, "cache")}
	for _, dir := range []string{own.Home, own.Temp, own.Cache} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	goEnv := map[string]string{"GOMODCACHE": modules, "GOPROXY": "off"} // no network
	cmd := exec.Command("go", "mod", "download")
	cmd.Dir = filepath.Join(base, "work")
	cmd.Env = worker.SetEnv(ConfinedEnv(worker.BaseEnv(os.Environ()), own, os.Getenv, goEnv), "GOTOOLCHAIN", "local")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if _, err := os.Stat(filepath.Join(own.Cache, "go-mod/github.com/google")); err != nil {
		t.Errorf("not in the tenant's cache: %v", err)
	}
	if err := exec.Command("chmod", "-R", "u+w", own.Cache).Run(); err != nil { // for the end of the test
		t.Error(err)
	}
}

// TestGitIdentity: a run's git knows its user, and nothing else of the user's settings.
func TestGitIdentity(t *testing.T) {
	mine := filepath.Join(aHome(t), ".gitconfig")
	touch(t, mine, "[core]\n\tname = x\n\tpager = evil\n[User]\n\tName = Ann # of here\n\temail=\"ann@example.com\"\n\tsigningkey = k\n[user \"x\"]\n\tname = y\n[alias]\n\tname = !evil\n")
	if got, want := gitIdentity(mine), "[user]\n\tName = Ann # of here\n\temail=\"ann@example.com\"\n"; got != want {
		t.Errorf("the user is %q, want %q", got, want)
	}
	if got := gitIdentity(mine + ".none"); got != "" {
		t.Errorf("without a file: %q", got)
	}
}
