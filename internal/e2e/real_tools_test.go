package e2e

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/internal/agentcore"
	"github.com/agentsched/agentsched/internal/scriptmodel"
	"github.com/agentsched/agentsched/internal/testrun"
	"github.com/agentsched/agentsched/job"
)

// TestRealTools: what projects are built, tested and served with works for the agents' programs in a sandbox, with no more than
// a job's grants. The model asks for it in commands; the registries are the test's.
func TestRealTools(t *testing.T) {
	tools := []string{"go", "npm", "python", "cargo", "c", "serve", "git", "remote"}
	sample := map[job.WorkerKind]struct {
		level string
		tools []string
	}{
		"codex": {"strict", []string{"go", "git", "remote"}}, "claude": {"standard", []string{"npm", "serve", "c"}}, "opencode": {"standard", []string{"python", "cargo"}},
	}
	eachCLI(t, "codex claude opencode", func(t *testing.T, kind job.WorkerKind) {
		for _, level := range []string{"standard", "strict"} {
			t.Run(level, func(t *testing.T) {
				these := tools
				if !testrun.Soaking() {
					if sample[kind].level != level {
						testrun.Long(t, "each tool is used by one program at one level")
					}
					these = sample[kind].tools
				}
				newYard(t).work(kind, level, these)
			})
		}
	})
}

// yard is a user's project with something for each tool, and the hosts that the tools ask.
type yard struct {
	b                *bench
	registry, remote string // HOST:PORT
}

func newYard(t *testing.T) *yard {
	b := newBench(t)
	y := &yard{b: b}
	// What is granted is the job's to say here, but for the toolchains of the user, whose home is another.
	b.env = slices.DeleteFunc(b.env, func(kv string) bool { return strings.HasPrefix(kv, "AGENTSCHED_SANDBOX__WRITE=") })
	home, _ := os.UserHomeDir()
	// Locks of Python's multiprocessing lie in /dev/shm, which at level standard is the host's.
	b.config["sandbox"] = obj{"read": agentcore.Toolchains(home, os.Getenv), "write": []string{"/dev/shm"}}
	for name, folder := range map[string]string{"RUSTUP_HOME": ".rustup", "PYENV_ROOT": ".pyenv"} {
		path := filepath.Join(home, folder)
		if set := os.Getenv(name); set != "" {
			path = set
		}
		if _, err := os.Stat(path); err == nil {
			b.env = append(b.env, name+"="+path)
		}
	}
	cache, err := exec.Command("go", "env", "GOCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	b.env = append(b.env, "GOCACHE="+strings.TrimSpace(string(cache)))
	y.serve()
	y.serveRemote()
	files := testdataFiles(t, "testdata/tools")
	for name, text := range files {
		path := filepath.Join(b.repo, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		b.write(path, strings.NewReplacer("REGISTRY", y.registry, "REMOTE", y.remote, "INTEGRITY", npmIntegrity()).Replace(text))
	}
	b.git("add", "-A")
	b.git("commit", "-q", "-m", "the project")
	return y
}

// testdataFiles are the files below a folder, by their paths in it without the ending .txt.
func testdataFiles(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := make(map[string]string)
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		name, _ := filepath.Rel(dir, path)
		files[strings.TrimSuffix(name, ".txt")] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// work has a CLI use the tools at a level.
func (y *yard) work(kind job.WorkerKind, level string, tools []string) {
	b := y.b
	t := b.t
	t.Helper()
	b.use(kind)
	var turns []scriptmodel.Turn
	var done []string
	for _, tool := range tools {
		turns = append(turns, scriptmodel.Run(fmt.Sprintf("sh -eux ./%s.sh > %s.log 2>&1 && touch %s.ok; tail -n 1 %s.log", tool, tool, tool, tool)))
		done = append(done, tool+".ok")
	}
	b.play("build", scriptmodel.Play(append(turns, scriptmodel.Say("All done."))...))
	r := b.start("run", b.jobs(b.task("build", kind, "build", obj{
		"sandbox": level, "network": []string{y.registry}, "verify": "ls " + strings.Join(done, " "), "limits": obj{"max_attempts": 1},
		"git": []obj{{"repository": y.remote + "/acme/site", "push": true}},
	})))
	<-r.ended
	o := b.last(b.show("build"))
	if o.Class != job.NoError {
		for _, tool := range tools {
			logs, _ := filepath.Glob(b.state + "/work/*/build-*/" + tool + ".log")
			for _, path := range logs {
				if _, err := os.Stat(strings.TrimSuffix(path, ".log") + ".ok"); err != nil {
					text, _ := os.ReadFile(path)
					t.Logf("%s:\n%s", tool, text)
				}
			}
		}
		r.fatalf("%s at level %s: %+v", kind, level, o)
	}
	if got := o.Sandbox; got == nil || string(got.Level) != level {
		t.Errorf("the run was held at %+v, want level %s", got, level)
	}
	if slices.Contains(tools, "go") {
		y.seeded()
	}
	b.noProcess()
}

// seeded looks at what a tenant's cache of Go began with: of what the user has built the standard library, and nothing of this
// program, of which the user's cache is full.
func (y *yard) seeded() {
	t := y.b.t
	t.Helper()
	files, err := filepath.Glob(y.b.state + "/cache/.go/*/*/*-d")
	if err != nil || len(files) < 500 {
		t.Errorf("%d files (%v) were taken from the user's cache of Go, want those of the standard library", len(files), err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil || bytes.Contains(data, []byte("agentsched/agentsched/")) {
			t.Errorf("%s is of a program of the user's (%v)", file, err)
		}
	}
}

// serve is a registry of npm, Python and Rust packages, each with one package hello. Its address is one of the loopback that
// clients ask by their proxy.
func (y *yard) serve() {
	t := y.b.t
	l, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	y.registry = l.Addr().String()
	wheel := zipped(map[string]string{"hello.py": "word = 'hello'\n",
		"hello-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: hello\nVersion: 1.0\n",
		"hello-1.0.dist-info/WHEEL":    "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
		"hello-1.0.dist-info/RECORD":   "hello.py,,\nhello-1.0.dist-info/METADATA,,\nhello-1.0.dist-info/WHEEL,,\nhello-1.0.dist-info/RECORD,,\n"})
	crate := tarball(map[string]string{"hello-1.0.0/Cargo.toml": "[package]\nname = \"hello\"\nversion = \"1.0.0\"\n", "hello-1.0.0/src/lib.rs": "pub fn word() -> &'static str { \"hello\" }\n"})
	files := map[string][]byte{
		"/hello/-/hello-1.0.0.tgz":    npmPackage(),
		"/simple/hello/":              fmt.Appendf(nil, `<!DOCTYPE html><a href="/hello-1.0-py3-none-any.whl#sha256=%x">hello-1.0-py3-none-any.whl</a>`, sha256.Sum256(wheel)),
		"/hello-1.0-py3-none-any.whl": wheel,
		"/crates/config.json":         fmt.Appendf(nil, `{"dl":"http://%s/dl"}`, y.registry),
		"/crates/he/ll/hello":         fmt.Appendf(nil, `{"name":"hello","vers":"1.0.0","deps":[],"cksum":"%x","features":{},"yanked":false}`+"\n", sha256.Sum256(crate)),
		"/dl/hello/1.0.0/download":    crate,
	}
	about, err := json.Marshal(obj{"name": "hello", "dist-tags": obj{"latest": "1.0.0"}, "versions": obj{"1.0.0": obj{
		"name": "hello", "version": "1.0.0", "bin": "bin.js", "dist": obj{"tarball": "http://" + y.registry + "/hello/-/hello-1.0.0.tgz", "integrity": npmIntegrity()}}}})
	if err != nil {
		t.Fatal(err)
	}
	files["/hello"] = about
	server := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, ok := files[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		if strings.HasSuffix(r.URL.Path, "/") {
			w.Header().Set("Content-Type", "text/html")
		}
		_, _ = w.Write(data)
	})}}
	server.Start()
	t.Cleanup(server.Close)
}

// serveRemote is a git host with the repository acme/site, to which the user has a password.
func (y *yard) serveRemote() {
	b := y.b
	root := b.dir + "/remote"
	if out, err := exec.Command("git", "clone", "-q", "--bare", b.repo, root+"/acme/site").CombinedOutput(); err != nil {
		b.t.Fatalf("%v: %s", err, out)
	}
	if out, err := exec.Command("git", "-C", root+"/acme/site", "config", "http.receivepack", "true").CombinedOutput(); err != nil {
		b.t.Fatalf("%v: %s", err, out)
	}
	path, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		b.t.Fatal(err)
	}
	backend := &cgi.Handler{Path: filepath.Join(strings.TrimSpace(string(path)), "git-http-backend"), Dir: root,
		Env: []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1", "PATH=" + os.Getenv("PATH")}}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, pass, _ := r.BasicAuth(); user != "ann" || pass != "her-password" {
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		backend.ServeHTTP(w, r)
	}))
	b.t.Cleanup(server.Close)
	y.remote = server.Listener.Addr().String()
	b.write(b.dir+"/ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	b.write(b.dir+"/home/.gitconfig", "[user]\n\tname = Ann\n\temail = ann@example.com\n[credential]\n\thelper = \"!f() { echo username=ann; echo password=her-password; }; f\"\n")
	b.env = append(b.env, "SSL_CERT_FILE="+b.dir+"/ca.pem")
}

func npmPackage() []byte {
	return tarball(map[string]string{"package/package.json": `{"name":"hello","version":"1.0.0","bin":"bin.js"}`, "package/index.js": "module.exports = 'hello'\n", "package/bin.js": "#!/usr/bin/env node\nconsole.log('hello')\n"})
}

func npmIntegrity() string {
	sum := sha512.Sum512(npmPackage())
	return "sha512-" + base64.StdEncoding.EncodeToString(sum[:])
}

func zipped(files map[string]string) []byte {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for name, text := range files {
		f, _ := z.Create(name)
		_, _ = f.Write([]byte(text))
	}
	_ = z.Close() // of memory
	return b.Bytes()
}

func tarball(files map[string]string) []byte {
	var b bytes.Buffer
	g := gzip.NewWriter(&b)
	a := tar.NewWriter(g)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		_ = a.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(files[name])), Typeflag: tar.TypeReg})
		_, _ = a.Write([]byte(files[name]))
	}
	_ = a.Close()
	_ = g.Close()
	return b.Bytes()
}
