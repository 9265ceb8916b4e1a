package pgtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Option is a setting of a server.
type Option func(*options)

type options struct {
	parent string
	fsync  bool
	conf   []string
	env    []string
	enter  func() error
	rate   float64 // of its wall clock; 0: it is the host's
}

// NoFsync does not wait for the disk: a commit survives the death of the server, and not
// that of the host.
func NoFsync(o *options) { o.fsync = false }

// Conf adds lines to postgresql.conf, such as "log_statement = all".
func Conf(lines ...string) Option { return func(o *options) { o.conf = append(o.conf, lines...) } }

// Env adds variables, such as "TZ=Asia/Tokyo", to the server's environment.
func Env(variables ...string) Option {
	return func(o *options) { o.env = append(o.env, variables...) }
}

// Enter has f called on the thread that starts the server, each time that it is started, such as
// one that enters a network namespace. Nothing else runs on that thread.
func Enter(f func() error) Option { return func(o *options) { o.enter = f } }

// In has the server's folder in that one instead of the temporary folder.
func In(folder string) Option { return func(o *options) { o.parent = folder } }

// ErrMissing is wrapped where PostgreSQL is not installed.
var ErrMissing = errors.New("PostgreSQL is not installed")

// programs returns the folder of the server's programs.
func programs() (string, error) {
	if dir := os.Getenv("AGENTSCHED_TEST_POSTGRES"); dir != "" {
		if _, err := os.Stat(filepath.Join(dir, "initdb")); err != nil {
			return "", fmt.Errorf("%w where AGENTSCHED_TEST_POSTGRES says: %w", ErrMissing, err)
		}
		return dir, nil
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil {
		return "", err
	}
	newest, dir := 0, ""
	for _, path := range found {
		bin := filepath.Dir(path)
		if n, err := strconv.Atoi(filepath.Base(filepath.Dir(bin))); err == nil && n > newest {
			newest, dir = n, bin
		}
	}
	if dir != "" {
		return dir, nil
	}
	path, err := exec.LookPath("initdb")
	if err != nil {
		return "", fmt.Errorf("%w: there is no initdb in /usr/lib/postgresql/*/bin, on PATH or where AGENTSCHED_TEST_POSTGRES says", ErrMissing)
	}
	if path, err = filepath.EvalSymlinks(path); err != nil { // postgres lies beside it
		return "", err
	}
	return filepath.Dir(path), nil
}

// New starts a server, which the caller closes.
func New(opts ...Option) (_ *Server, err error) {
	o := options{fsync: true}
	for _, set := range opts {
		set(&o)
	}
	s := &Server{env: o.env, enter: o.enter, password: rand.Text()}
	if s.bin, err = programs(); err != nil {
		return nil, err
	}
	if err := s.makeFolder(o.parent); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if err := s.init(&o); err != nil {
		return nil, err
	}
	if s.rate = o.rate; s.rate != 0 {
		if err := s.fakeClock(); err != nil {
			return nil, err
		}
	}
	return s, s.start()
}

// makeFolder makes the server's folder. Started by root, the server runs as user
// postgres, since it refuses to be root.
func (s *Server) makeFolder(parent string) error {
	uid := os.Getuid()
	if os.Geteuid() == 0 {
		who, err := user.Lookup(Superuser)
		if err != nil {
			return fmt.Errorf("PostgreSQL does not run as root: %w", err)
		}
		var gid int
		if uid, err = strconv.Atoi(who.Uid); err != nil {
			return err
		}
		if gid, err = strconv.Atoi(who.Gid); err != nil {
			return err
		}
		s.as = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		if parent == "" {
			parent = os.TempDir()
			if reachable(parent) != nil {
				parent = "/tmp"
			}
		}
		if err := reachable(parent); err != nil {
			return err
		}
	}
	folder, err := os.MkdirTemp(parent, "pg")
	if err != nil {
		return err
	}
	s.folder = folder
	return os.Chown(folder, uid, -1)
}

// reachable says why another user cannot reach a folder.
func reachable(dir string) error {
	dir, err := filepath.Abs(dir)
	for err == nil {
		var info os.FileInfo
		if info, err = os.Stat(dir); err == nil && info.Mode().Perm()&0o1 == 0 {
			return fmt.Errorf("user %s, whom PostgreSQL runs as, cannot enter %s: its mode is %#o", Superuser, dir, info.Mode().Perm())
		}
		if dir == filepath.Dir(dir) {
			break
		}
		dir = filepath.Dir(dir)
	}
	return err
}

// init makes the server's files.
func (s *Server) init(o *options) error {
	secret := filepath.Join(s.folder, "password")
	if err := s.write(secret, s.password+"\n"); err != nil {
		return err
	}
	runtime.LockOSThread() // it is told when the thread ends that has started it, which another goroutine could end
	defer runtime.UnlockOSThread()
	out, err := s.command("initdb", "--pgdata", s.data(), "--username", Superuser, "--encoding", "UTF8", "--locale", "C",
		"--auth-local", "trust", "--auth-host", "scram-sha-256", "--pwfile", secret, "--no-sync").CombinedOutput()
	if err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	if s.port, err = freePort(); err != nil {
		return err
	}
	certificate, key, err := selfSigned()
	if err != nil {
		return err
	}
	conf := append([]string{
		"listen_addresses = '127.0.0.1'", "port = " + strconv.Itoa(s.port), "unix_socket_directories = '" + s.folder + "'",
		"ssl = on", "ssl_cert_file = '" + s.certificate() + "'", "ssl_key_file = '" + filepath.Join(s.folder, "key.pem") + "'",
		"max_connections = 200", "logging_collector = off",
		"dynamic_shared_memory_type = mmap", // in its folder: a server that is killed leaves nothing in /dev/shm
	}, o.conf...)
	if !o.fsync {
		conf = append(conf, "fsync = off")
	}
	users := fmt.Sprintf("*:*:*:%s:%s\n*:*:*:%s:%s\n", Superuser, s.password, Owner, s.password)
	return errors.Join(
		s.write(s.certificate(), certificate), s.write(filepath.Join(s.folder, "key.pem"), key),
		s.write(s.PasswordFile(), users),
		s.write(filepath.Join(s.data(), "postgresql.auto.conf"), strings.Join(conf, "\n")+"\n"))
}

// write writes a file that only the server and root may read.
func (s *Server) write(path, text string) error {
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return err
	}
	if s.as == nil {
		return nil
	}
	return os.Chown(path, int(s.as.Uid), int(s.as.Gid))
}

// freePort returns a port of 127.0.0.1 below those that Linux gives to clients, so that
// none has it while the server is down.
func freePort() (port int, err error) {
	for range 100 {
		port = 15000 + mathrand.N(17000)
		var l net.Listener
		if l, err = net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port)); err == nil {
			return port, l.Close()
		}
	}
	return 0, err
}

// selfSigned returns a certificate for 127.0.0.1 and its key, in PEM.
func selfSigned() (certificate, key string, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", "", err
	}
	now := time.Now()
	of := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: now.Add(-24 * time.Hour), NotAfter: now.Add(10 * 365 * 24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, of, of, &private.PublicKey, private)
	if err != nil {
		return "", "", err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return "", "", err
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})), nil
}
