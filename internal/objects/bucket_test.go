package objects

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/agentsched/agentsched/internal/objects/objectstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// keys are the variables that hold the keys of a test's server.
var keys = map[string]string{"ACCESS": objectstest.AccessKey, "SECRET": objectstest.SecretKey + "\n", "OTHER": "AKIAOTHER", "WRONG": "wrong", "EMPTY": " "}

func config(endpoint string) Config {
	return Config{Endpoint: endpoint, Bucket: objectstest.Bucket, Prefix: "a/b", Region: objectstest.Region, AccessKey: "env:ACCESS", SecretKey: "env:SECRET"}
}

func open(t *testing.T, cfg Config) *Bucket {
	t.Helper()
	b, err := Open(cfg, func(name string) string { return keys[name] })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

func read(t *testing.T, b *Bucket, key string) (string, error) {
	t.Helper()
	content, err := b.Open(t.Context(), key)
	if err != nil {
		return "", err
	}
	defer content.Close()
	text, err := io.ReadAll(content)
	return string(text), err
}

// TestBucket: what is put is read, listed below the prefix in order, and removed.
func TestBucket(t *testing.T) {
	s := objectstest.Start(t)
	b := open(t, config(s.URL))
	large := strings.Repeat("0123456789", 1<<20)
	for key, content := range map[string]string{"x/1": "one", "x/2": "", "x/3 ü+&=?#%": large, "y/1": "other"} {
		if err := b.Put(t.Context(), key, strings.NewReader(content), int64(len(content))); err != nil {
			t.Fatal(err)
		}
		if got, err := read(t, b, key); err != nil || got != content {
			t.Errorf("%s: %d bytes of %d, %v", key, len(got), len(content), err)
		}
		if got := s.Objects(t)["a/b/"+key]; string(got) != content {
			t.Errorf("%s: the service has %d bytes of %d", key, len(got), len(content))
		}
	}
	s.Put(t, "a/bx/1", nil) // of somebody else's prefix
	for _, c := range []struct {
		begin, after string
		n            int
		want         string
	}{{"", "", 9, "x/1 x/2 x/3 ü+&=?#% y/1"}, {"x/", "", 2, "x/1 x/2"}, {"x/", "x/1", 1, "x/2"}, {"z/", "", 9, ""}} {
		list, err := b.List(t.Context(), c.begin, c.after, c.n)
		var got []string
		for _, o := range list {
			got = append(got, o.Key)
		}
		if err != nil || strings.Join(got, " ") != c.want {
			t.Errorf("%q after %q: %q, %v, want %s", c.begin, c.after, got, err, c.want)
		}
	}
	if err := b.Remove(t.Context(), "x/1", "none", "y/1"); err != nil {
		t.Error(err)
	}
	if _, err := read(t, b, "x/1"); !errors.Is(err, ErrNotFound) {
		t.Errorf("a removed object: %v", err)
	}
	if err := b.Check(t.Context(), "check"); err != nil {
		t.Error(err)
	}
	if got, want := s.Keys(t), []string{"a/b/x/2", "a/b/x/3 ü+&=?#%", "a/bx/1"}; !slices.Equal(got, want) {
		t.Errorf("left are %q, want %q", got, want)
	}
}

// TestTLS: a service is reached by a certificate that ca_file has, and by no other.
func TestTLS(t *testing.T) {
	s := objectstest.StartTLS(t)
	cfg := config(s.URL)
	if err := open(t, cfg).Check(t.Context(), "check"); err == nil || !strings.Contains(err.Error(), "ca_file: ") {
		t.Errorf("a certificate that nobody trusted has signed: %v", err)
	}
	cfg.CAFile = filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(cfg.CAFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate()}), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := open(t, cfg).Check(t.Context(), "check"); err != nil {
		t.Error(err)
	}
}

// TestWrong: an error names the field that is wrong, and holds no key.
func TestWrong(t *testing.T) {
	s := objectstest.Start(t)
	dir := t.TempDir()
	public := filepath.Join(dir, "public")
	if err := os.WriteFile(public, []byte(objectstest.SecretKey), 0o644); err != nil {
		t.Fatal(err)
	}
	gone := httptest.NewServer(nil)
	gone.Close()
	for _, c := range []struct {
		change func(*Config)
		want   string
	}{
		{func(c *Config) { c.AccessKey = "env:OTHER" }, "access_key: the service does not know it"},
		{func(c *Config) { c.SecretKey = "env:WRONG" }, "secret_key: it is not that of access_key"},
		{func(c *Config) { c.SecretKey = "env:EMPTY" }, "secret_key: env:EMPTY holds nothing"},
		{func(c *Config) { c.SecretKey = "file:" + public }, "secret_key: " + public + " is open to other users"},
		{func(c *Config) { c.SecretKey = "file:" + dir + "/none" }, "secret_key: open " + dir + "/none: file does not exist"},
		{func(c *Config) { c.Bucket = "another" }, "bucket: there is none of this name"},
		{func(c *Config) { c.CAFile = public }, "ca_file: " + public + " has no certificate"},
		{func(c *Config) { c.Endpoint = gone.URL }, "endpoint: it is not reached"},
	} {
		cfg := config(s.URL)
		c.change(&cfg)
		b, err := Open(cfg, func(name string) string { return keys[name] })
		if err == nil {
			err = b.Check(t.Context(), "check")
			b.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), objectstest.SecretKey) {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
}

// TestAway: a service that cuts connections is tried a few times, and one that is there again works.
func TestAway(t *testing.T) {
	s := objectstest.Start(t)
	b := open(t, config(s.URL))
	s.Away(true)
	if err := b.Put(t.Context(), "x", strings.NewReader("x"), 1); err == nil || !strings.HasPrefix(err.Error(), "endpoint: it is not reached: ") {
		t.Error(err)
	}
	if n := len(s.Requests()); n != tries {
		t.Errorf("it was tried %d times, want %d", n, tries)
	}
	ctx, cancel := context.WithCancel(t.Context())
	s.Before(func(*http.Request) { cancel() })
	s.Away(false)
	if err := b.Put(ctx, "x", strings.NewReader("x"), 1); !errors.Is(err, context.Canceled) {
		t.Errorf("a request that was cancelled: %v", err)
	}
	s.Before(nil)
	if err := b.Check(t.Context(), "check"); err != nil {
		t.Error(err)
	}
}

// TestHostile: a service that sends elsewhere, or lists what was not asked for, is not followed.
func TestHostile(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("%s %s was followed", r.Method, r.URL) }))
	defer other.Close()
	answer := func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { answer(w, r) }))
	defer s.Close()
	b := open(t, config(s.URL))
	_, err := read(t, b, "x")
	for _, err := range []error{err, b.Put(t.Context(), "x", bytes.NewReader([]byte("x")), 1)} {
		if err == nil || !strings.Contains(err.Error(), "endpoint: the bucket is reached by another one") {
			t.Errorf("a redirection: %v", err)
		}
	}
	answer = func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `<ListBucketResult><Contents><Key>a/c/x</Key></Contents></ListBucketResult>`) //nolint:errcheck // it is read or not
	}
	if list, err := b.List(t.Context(), "", "", 9); err == nil || !strings.Contains(err.Error(), "not asked for") {
		t.Errorf("listed %+v, %v", list, err)
	}
}
