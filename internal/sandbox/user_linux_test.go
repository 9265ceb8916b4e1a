//go:build amd64 || arm64

package sandbox

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// TestAsOrdinaryUser runs the other tests once more, as a user without rights.
func TestAsOrdinaryUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can become another user: the tests run as an ordinary one already")
	}
	dir, err := os.MkdirTemp("", "sandbox") // not below this test's own, which is closed to others
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	const nobody = 65534
	for _, sub := range []string{"", "package", "package/testdata", "tmp"} {
		mustDo(t, os.MkdirAll(filepath.Join(dir, sub), 0o755))
		mustDo(t, os.Chown(filepath.Join(dir, sub), nobody, nobody))
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("testdata/*")
	if err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{exe: "sandbox.test", "doc.go": "package/doc.go", files[0]: "package/" + files[0], files[1]: "package/" + files[1]} {
		copyFile(t, from, filepath.Join(dir, to))
	}
	// That user has no cache of Go's, and would compile the standard library; the last two are the same for all users.
	cmd := exec.Command(filepath.Join(dir, "sandbox.test"), "-test.v=false", "-test.skip=^TestAsOrdinaryUser$|^TestPrograms$/^go$|^TestFilter$|^TestTooManyGrants$")
	cmd.Dir = filepath.Join(dir, "package")
	cmd.Env = append(os.Environ(), "HOME="+dir, "TMPDIR="+filepath.Join(dir, "tmp"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}, Pdeathsig: syscall.SIGKILL}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(out, in)
	mustDo(t, err)
	mustDo(t, out.Close())
}
