//go:build amd64 || arm64

package sandbox

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/internal/proc"
)

// TestPrograms: what agents use works under a typical policy.
func TestPrograms(t *testing.T) {
	out, err := exec.Command("go", "env", "GOROOT", "GOCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	goroot, cache, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	mustDo(t, os.MkdirAll(cache, 0o755))
	for _, tc := range []struct{ name, program, script, want string }{
		{"shell", "sh", `echo one >file && cat file | tr a-z A-Z && rm file && (exit 3) || echo $? >/dev/stderr`, "ONE\n3\n"},
		{"git", "sh", `git init -q r && cd r && echo x >f && git add f && git -c user.name=n -c user.email=e@example.org commit -qm c && git log --format=%s && git gc -q && git status --short`, "c\n"},
		{"go", "sh", `mkdir m && cd m && printf 'module m\n' >go.mod && printf 'package m\nimport ("net/http"; "net/http/httptest"; "testing")\nfunc Test(t *testing.T) { s := httptest.NewServer(http.NotFoundHandler()); defer s.Close(); r, err := http.Get(s.URL); if err != nil { t.Fatal(err) }; r.Body.Close() }\n' >m_test.go && go test . >out && cut -c1-4 out`, "ok  \n"},
		{"node", "sh", `cat >s.js <<'S'
const http = require('http'), cp = require('child_process'), worker = require('worker_threads')
const s = http.createServer((q, r) => r.end('served')).listen(0, async () => {
  const text = await (await fetch('http://localhost:' + s.address().port)).text()
  const other = await (await fetch('http://127.0.0.1:' + s.address().port)).text()
  const child = cp.execSync('echo child').toString().trim()
  new worker.Worker("1", {eval: true}).on('exit', () => { console.log(text, other, child); s.close(); s.closeAllConnections() })
})
S
node s.js`, "served served child\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			try := func(t *testing.T, p *Policy, workspace string, run func(env []string) (string, error)) {
				home, temp := realDir(t), realDir(t)
				p.Read = append(p.Read, goroot)
				p.Write = append(p.Write, home, temp, cache)
				got, err := run([]string{"HOME=" + home, "TMPDIR=" + temp, "GOCACHE=" + cache,
					"GOMODCACHE=" + filepath.Join(home, "mod"), "GOFLAGS=", "GOPROXY=off", "PATH=" + goroot + "/bin:/usr/local/bin:/usr/bin:/bin"})
				if err != nil || got != tc.want {
					t.Errorf("printed %q, %v; want %q", got, err, tc.want)
				}
			}
			t.Run(string(Standard), func(t *testing.T) {
				p, workspace := typical(t)
				try(t, p, workspace, func(env []string) (string, error) { return output(t, p, workspace, env, tc.program, "-c", tc.script) })
			})
			t.Run(string(Strict), func(t *testing.T) {
				p, workspace := strictly(t)
				h := newHost(t)
				try(t, p, workspace, func(env []string) (string, error) {
					r := begin(t, h, p, "exec 2>&1\n"+tc.script, func(spec *proc.Spec) { spec.Env, spec.Dir = env, workspace })
					text, err := io.ReadAll(r.out)
					return string(text), err
				})
			})
		})
	}
}

// BenchmarkPrepare is the part of a start that is made before the process.
func BenchmarkPrepare(b *testing.B) {
	p, _ := typical(b)
	for b.Loop() {
		s, err := p.Prepare("/bin/true", nil)
		if err != nil {
			b.Fatal(err)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
