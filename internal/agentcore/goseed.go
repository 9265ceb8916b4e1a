package agentcore

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/agentsched/agentsched/worker"
)

// A tenant's cache of Go is new when the user's has long had the standard library, which takes minutes of a processor to
// build and to vet. So it begins with a copy. The user's cache itself would show what else the user has built, and what a run
// changes there the user's next build would take. So go builds a package that imports the standard library and nothing else,
// and what it asks for is taken: see ServeGoCache.

// goSeedTime bounds how long the first run of a tenant waits for that. What was taken by then is kept.
const goSeedTime = 30 * time.Second

// goSeeds makes the beginnings of caches.
type goSeeds struct {
	program string // which serves GOCACHEPROG; "" makes none
	run     func(ctx context.Context, cmd *exec.Cmd) error
	dir     string // of the caches
}

// seed makes a tenant's cache of Go if there is none. environ is that of a run of it.
func (s *goSeeds) seed(ctx context.Context, cache, temp string, environ []string, user func(name string) string) error {
	to := filepath.Join(cache, "go-build")
	if _, err := os.Lstat(to); err == nil || s.program == "" {
		return nil
	}
	from := cmp.Or(user("GOCACHE"), GoEnv(user)["GOCACHE"], filepath.Join(cmp.Or(user("XDG_CACHE_HOME"), filepath.Join(user("HOME"), ".cache")), "go-build"))
	program := lookIn(user("PATH"), "go")
	if program == "" || !isFolder(from) {
		return nil
	}
	seed := filepath.Join(s.dir, ".go", goSeedName(program, environ))
	made := filepath.Join(seed, "made")
	if _, err := os.Stat(made); err != nil {
		if err := s.make(ctx, program, from, seed, temp, environ); err != nil {
			return err
		}
	}
	return copyCache(seed, s.dir, to)
}

// goSeedName tells apart what go builds otherwise.
func goSeedName(program string, environ []string) string {
	h := sha256.New()
	info, err := os.Stat(program)
	if err == nil {
		fmt.Fprintln(h, program, info.Size(), info.ModTime().UnixNano())
	}
	getenv := (&worker.Task{Environ: environ}).Getenv
	for _, name := range []string{"GOROOT", "GOFLAGS", "GOOS", "GOARCH", "GOAMD64", "GOARM64", "GOEXPERIMENT", "CGO_ENABLED", "CC", "CGO_CFLAGS", "CGO_LDFLAGS"} {
		fmt.Fprintf(h, "%s=%q\n", name, getenv(name))
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:16])
}

// make has go build and vet the standard library's packages.
func (s *goSeeds) make(ctx context.Context, program, from, seed, temp string, environ []string) error {
	work, err := os.MkdirTemp(temp, "go-seed-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	module, config := filepath.Join(work, "module"), filepath.Join(work, "config")
	files := map[string]string{
		"module/go.mod": "module seed\n\ngo 1.24\n", "module/seed.go": goSeedSource(),
		"config/go/telemetry/mode": "off\n", // else it starts a process that outlives it
		"module/seed_test.go":      "package seed\n\nimport \"testing\"\n\nfunc Test(*testing.T) {}\n",
	}
	for name, text := range files {
		if err := place(filepath.Join(work, filepath.FromSlash(name)), strings.NewReader(text)); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(seed, 0o700); err != nil {
		return err
	}
	env := environ
	for name, value := range map[string]string{
		"GOCACHEPROG": fmt.Sprintf("'%s' %s '%s' '%s'", s.program, GoCacheCommand, from, seed), "GOCACHE": filepath.Join(work, "cache"),
		"GOTOOLCHAIN": "local", "GOPROXY": "off", "GOWORK": "off", "GO111MODULE": "on", "TMPDIR": work, "PWD": module, "HOME": work, "XDG_CONFIG_HOME": config,
	} {
		env = worker.SetEnv(env, name, value)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, goSeedTime, fmt.Errorf("it has taken more than %v", goSeedTime))
	defer cancel()
	var failed error
	for _, args := range [][]string{{"test", "-run=^$", "."}, {"vet", "."}} {
		cmd := exec.Command(program, args...)
		said := &bounded{max: 4 << 10}
		cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = module, env, said, said
		if err := s.run(ctx, cmd); err != nil && ctx.Err() != nil {
			return nil // the next tenant's goes on from here
		} else if err != nil {
			failed = fmt.Errorf("%w: %s", err, said.Bytes())
			break // and would the next time, such as an older Go's, which knows no GOCACHEPROG
		}
	}
	return errors.Join(failed, place(filepath.Join(seed, "made"), strings.NewReader("")))
}

// goSeedSource imports what most programs and their tests do.
func goSeedSource() string {
	var b strings.Builder
	b.WriteString("package seed\n\nimport (\n")
	for _, path := range strings.Fields(`archive/tar archive/zip bufio bytes compress/gzip container/heap container/list context crypto/ecdsa crypto/ed25519
		crypto/hmac crypto/md5 crypto/rand crypto/rsa crypto/sha1 crypto/sha256 crypto/sha512 crypto/tls crypto/x509 database/sql embed encoding/base64
		encoding/binary encoding/csv encoding/gob encoding/hex encoding/json encoding/pem encoding/xml errors expvar flag fmt go/ast go/build go/format go/parser
		go/token go/types hash/crc32 hash/fnv html/template image/png io io/fs iter log log/slog maps math math/big math/rand math/rand/v2 mime/multipart net
		net/http net/http/cookiejar net/http/httptest net/http/httputil net/http/pprof net/mail net/netip net/smtp net/textproto net/url os os/exec os/signal
		os/user path path/filepath reflect regexp runtime runtime/debug runtime/pprof runtime/trace slices sort strconv strings sync sync/atomic syscall testing
		testing/fstest testing/iotest testing/quick text/tabwriter text/template time unicode unicode/utf16 unicode/utf8 unsafe`) {
		fmt.Fprintf(&b, "\t_ %q\n", path)
	}
	b.WriteString(")\n")
	return b.String()
}

// copyCache puts a copy of a seed at a path, unless there is something. The copy is made beside the caches, where no run may
// write.
func copyCache(seed, caches, to string) error {
	stage, err := os.MkdirTemp(caches, ".new-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(stage)
	whole := filepath.Join(stage, "go-build")
	err = filepath.WalkDir(seed, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "-a") && !strings.HasSuffix(path, "-d") {
			return err
		}
		rel, err := filepath.Rel(seed, path)
		if err != nil {
			return err
		}
		return copyFile(path, filepath.Join(whole, rel))
	})
	if err != nil {
		return err
	}
	if err := os.Rename(whole, to); err != nil && !errors.Is(err, fs.ErrExist) && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in) // which file systems that can do by sharing blocks
	return errors.Join(err, out.Close())
}

// holdsGo says whether a workspace, or a folder in it, is a Go module: others do not wait for what they will not use.
func holdsGo(folder string) bool {
	for _, pattern := range []string{"go.mod", "go.work", "*/go.mod"} {
		if found, _ := fs.Glob(os.DirFS(folder), pattern); len(found) > 0 {
			return true
		}
	}
	return false
}

// lookIn returns the absolute path of a program in a list of folders; "" if it is not there.
func lookIn(path, name string) string {
	for _, dir := range filepath.SplitList(path) {
		file := filepath.Join(dir, name)
		if info, err := os.Stat(file); err == nil && filepath.IsAbs(file) && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return file
		}
	}
	return ""
}
