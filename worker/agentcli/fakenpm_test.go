package agentcli_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// npmScript stands in for npm: a real process that reads the package.json of
// its working folder and fills node_modules, in the way that the file "mode"
// beside it says.
const npmScript = `#!/bin/sh
here=$(dirname "$0")
echo "$*" >> "$here/calls"
kind=$(sed -n 's/.*"name": "agentsched-\(.*\)".*/\1/p' package.json)
version=$(sed -n 's/.*": "\([0-9][0-9.]*\)".*/\1/p' package.json | head -n 1)
grep -q '"integrity": "sha512-' package-lock.json || { echo no lockfile >&2; exit 1; }
env > "$here/npm-env"
mkdir -p node_modules/.bin node_modules/pkg node_modules/@anthropic-ai/claude-code node_modules/opencode-ai
read -r mode < "$here/mode"
case $mode in
fail)
	for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do echo "npm error line $i" >&2; done
	exit 1 ;;
block)
	echo half > node_modules/pkg/half
	echo $$ > "$here/started"
	read -r line < "$here/go" ;;
nothing) exit 0 ;;
stub) printf '#!/bin/sh\necho the native binary is missing >&2\nexit 1\n' > node_modules/pkg/run ;;
other) version=0.0.1 ;;
esac
[ -e node_modules/pkg/run ] || printf '#!/bin/sh\necho tool %s; echo x > "$HOME/written"\n' "$version" > node_modules/pkg/run
chmod +x node_modules/pkg/run
ln -s ../pkg/run "node_modules/.bin/$kind"
`

// nodeScript stands in for node, which runs a package's script.
const nodeScript = `#!/bin/sh
here=$(dirname "$0")
echo "$(basename "$PWD") $*" >> "$here/scripts"
env > "$here/node-env"
`

// fakeNPM is the folder, first on PATH, in which the script and its files are.
type fakeNPM struct {
	t   *testing.T
	dir string
}

func newFakeNPM(t *testing.T, mode string) fakeNPM {
	t.Helper()
	n := fakeNPM{t, t.TempDir()}
	if err := os.WriteFile(n.path("npm"), []byte(npmScript), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(n.path("node"), []byte(nodeScript), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, fifo := range []string{"started", "go"} {
		if err := syscall.Mkfifo(n.path(fifo), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	n.mode(mode)
	t.Setenv("PATH", n.dir+":"+os.Getenv("PATH"))
	return n
}

func (n fakeNPM) path(name string) string { return filepath.Join(n.dir, name) }

func (n fakeNPM) mode(mode string) {
	n.t.Helper()
	if err := os.WriteFile(n.path("mode"), []byte(mode+"\n"), 0o600); err != nil {
		n.t.Fatal(err)
	}
}

// calls returns the arguments of each call so far.
func (n fakeNPM) calls() []string {
	data, err := os.ReadFile(n.path("calls"))
	if err != nil {
		return nil
	}
	return strings.Split(strings.TrimSpace(string(data)), "\n")
}

// started waits for a blocked npm and returns its process id.
func (n fakeNPM) started() int {
	n.t.Helper()
	data, err := os.ReadFile(n.path("started"))
	if err != nil {
		n.t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		n.t.Fatal(err)
	}
	return pid
}

// proceed lets a blocked npm go on.
func (n fakeNPM) proceed() {
	n.t.Helper()
	if err := os.WriteFile(n.path("go"), []byte("go\n"), 0o600); err != nil {
		n.t.Fatal(err)
	}
}

// installerProcess returns a process that installs the kinds into dir.
func installerProcess(t *testing.T, dir string, kinds ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, kinds...)
	cmd.Env = append(os.Environ(), ensureDir+"="+dir)
	cmd.Stderr = t.Output()
	return cmd
}

// clean fails the test if dir holds more than finished installs and the lock.
func clean(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".installing-") {
			t.Errorf("%s is left in %s", e.Name(), dir)
		}
	}
}
