package agentcore

import (
	"bufio"
	"cmp"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/agentsched/agentsched/worker"
)

// ConfinedFolders are those that a confined run has for its own.
type ConfinedFolders struct {
	Home  string // in place of the user's
	Temp  string
	Cache string // of its tenant, see statedir.Dir.Cache
}

// unreachable are the variables that lead to what a confined run cannot reach: services
// of the user's session, and the host's way to the network.
var unreachable = []string{
	"SSH_AUTH_SOCK", "SSH_AGENT_PID", "GPG_AGENT_INFO", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "DOCKER_HOST",
	"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "no_proxy", "all_proxy",
}

// located is a variable and the folder, below another, that it names.
type located struct{ variable, folder string }

var (
	// privates name folders of the private home.
	privates = []located{
		{"HOME", ""}, {"XDG_CONFIG_HOME", ".config"}, {"XDG_DATA_HOME", ".local/share"}, {"XDG_STATE_HOME", ".local/state"}, {"XDG_CACHE_HOME", ".cache"},
	}
	// caches name folders of the tenant's cache, in which toolchains keep what they
	// download and build.
	caches = []located{
		{"GOPATH", "go"}, {"GOMODCACHE", "go-mod"}, {"GOCACHE", "go-build"},
		{"CARGO_HOME", "cargo"},
		{"npm_config_cache", "npm"}, {"YARN_CACHE_FOLDER", "yarn"}, {"PNPM_HOME", "pnpm"}, // pnpm's store lies in its home
		{"DENO_DIR", "deno"}, {"BUN_INSTALL_CACHE_DIR", "bun"},
		{"PIP_CACHE_DIR", "pip"}, {"UV_CACHE_DIR", "uv"},
		{"GRADLE_USER_HOME", "gradle"}, {"COMPOSER_CACHE_DIR", "composer"}, {"BUNDLE_USER_CACHE", "bundle"}, {"NUGET_PACKAGES", "nuget"},
	}
	// installed are folders of the tenant's cache for programs that runs install.
	installed = []string{"go/bin", "cargo/bin"}
	// locators name toolchains of the user's home, which would be looked for in the
	// private one. Those that exist are used without being written.
	locators = []located{
		{"RUSTUP_HOME", ".rustup"}, {"PYENV_ROOT", ".pyenv"}, {"UV_PYTHON_INSTALL_DIR", ".local/share/uv/python"}, {"NVM_DIR", ".nvm"}, {"VOLTA_HOME", ".volta"},
		{"ASDF_DIR", ".asdf"}, {"ASDF_DATA_DIR", ".asdf"}, {"MISE_DATA_DIR", ".local/share/mise"}, {"SDKMAN_DIR", ".sdkman"}, {"RBENV_ROOT", ".rbenv"},
	}
)

// ConfinedEnv returns the environment of a confined run: environ, with the run's own
// folders in place of the user's, and without what leads to services of the host.
// getenv finds variables of the core's own environment, HOME among them; goEnv is what
// the user has set by `go env -w`, see GoEnv. What the user's toolchains have downloaded
// is used where that works without writing.
func ConfinedEnv(environ []string, own ConfinedFolders, getenv func(name string) string, goEnv map[string]string) []string {
	home := getenv("HOME")
	env := worker.UnsetEnv(environ, unreachable...)
	set := func(variable, value string) { env = worker.SetEnv(env, variable, value) }
	given := func(name string) string {
		return cmp.Or((&worker.Task{Environ: environ}).Getenv(name), getenv(name), goEnv[name])
	}

	modules := given("GOMODCACHE")
	if modules == "" {
		first, _, _ := strings.Cut(cmp.Or(given("GOPATH"), filepath.Join(home, "go")), string(filepath.ListSeparator))
		modules = filepath.Join(first, "pkg", "mod")
	}
	for name, value := range goEnv {
		if (&worker.Task{Environ: env}).Getenv(name) == "" {
			set(name, value)
		}
	}
	if proxy := filepath.Join(modules, "cache", "download"); isFolder(proxy) {
		// It comes first, since most runs have no network: a version that it lacks is
		// asked of the next.
		of := url.URL{Scheme: "file", Path: proxy}
		set("GOPROXY", of.String()+","+cmp.Or(given("GOPROXY"), "https://proxy.golang.org,direct"))
	}
	for _, l := range locators {
		if path := cmp.Or(given(l.variable), filepath.Join(home, filepath.FromSlash(l.folder))); isFolder(path) {
			set(l.variable, path)
		}
	}
	for _, l := range privates {
		set(l.variable, filepath.Join(own.Home, filepath.FromSlash(l.folder)))
	}
	for _, l := range caches {
		if (&worker.Task{Environ: environ}).Getenv(l.variable) == "" { // else the job or the settings pass one on
			set(l.variable, filepath.Join(own.Cache, l.folder))
		}
	}
	set("TMPDIR", own.Temp)
	// What the run installs comes last, so that it takes no other program's place.
	path := filepath.SplitList(given("PATH"))
	for _, folder := range installed {
		path = append(path, filepath.Join(own.Cache, folder))
	}
	set("PATH", strings.Join(append(path, filepath.Join(own.Home, ".local", "bin")), string(filepath.ListSeparator)))
	// Java takes the home from the password file, and Maven has no variable of its own.
	for _, name := range []string{"MAVEN_OPTS", "GRADLE_OPTS"} {
		opts := strings.TrimSpace(given(name) + " -Duser.home=" + own.Home)
		if name == "MAVEN_OPTS" {
			opts += " -Dmaven.repo.local=" + filepath.Join(own.Cache, "maven")
		}
		set(name, opts)
	}
	return env
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && filepath.IsAbs(path) && info.IsDir()
}

// maxGoEnv bounds what is read of the file of `go env -w`, in bytes.
const maxGoEnv = 64 << 10

// GoEnv returns what the user has set by `go env -w`, for a run whose private home has no
// such file. getenv finds variables of the user's environment. It is empty if nothing is
// set or the file cannot be read: go then has its defaults.
func GoEnv(getenv func(name string) string) map[string]string {
	path := getenv("GOENV")
	if path == "" {
		path = filepath.Join(cmp.Or(getenv("XDG_CONFIG_HOME"), filepath.Join(getenv("HOME"), ".config")), "go", "env")
	}
	info, err := os.Stat(path) // "off" is no file
	if err != nil || !info.Mode().IsRegular() {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	set := map[string]string{}
	for lines := bufio.NewScanner(io.LimitReader(f, maxGoEnv)); lines.Scan(); {
		name, value, ok := strings.Cut(strings.TrimSpace(lines.Text()), "=")
		if ok && value != "" && !strings.HasPrefix(name, "#") && strings.Contains(name, "GO") {
			set[name] = value
		}
	}
	return set
}
