// Package objectstest is an S3 service for tests, which checks signatures. Only tests import it.
package objectstest

import (
	"bytes"
	"context"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rclone/gofakes3"
	"github.com/rclone/gofakes3/s3mem"
)

// The keys and the bucket of a server.
const (
	AccessKey = "AKIATEST"
	SecretKey = "not-to-be-shown"
	Region    = "eu-test-1"
	Bucket    = "artifacts"
)

// Server is a service with one bucket, which keeps what it has in memory.
type Server struct {
	URL     string
	http    *httptest.Server
	backend *s3mem.Backend

	mu       sync.Mutex // guards what follows
	away     bool
	now      time.Time // zero: the true time
	requests []string
	before   func(*http.Request)
}

// Start starts a server that ends with the test.
func Start(t testing.TB) *Server { return start(t, (*httptest.Server).Start) }

// StartTLS is Start with a certificate, which Certificate returns in PEM.
func StartTLS(t testing.TB) *Server { return start(t, (*httptest.Server).StartTLS) }

func start(t testing.TB, begin func(*httptest.Server)) *Server {
	t.Helper()
	s := &Server{}
	s.backend = s3mem.New(s3mem.WithTimeSource(s))
	if err := s.backend.CreateBucket(t.Context(), Bucket); err != nil {
		t.Fatal(err)
	}
	service := gofakes3.New(listing{s.backend}, gofakes3.WithV4Auth(map[string]string{AccessKey: SecretKey}), gofakes3.WithoutVersioning(),
		gofakes3.WithIntegrityCheck(true), gofakes3.WithTimeSkewLimit(0)).Server()
	s.http = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		away, before := s.away, s.before
		s.requests = append(s.requests, r.Method+" "+r.URL.Path)
		s.mu.Unlock()
		if away {
			cut(w)
			return
		}
		if before != nil {
			before(r)
		}
		service.ServeHTTP(w, r)
	}))
	s.http.Config.ErrorLog = log.New(io.Discard, "", 0)
	begin(s.http)
	s.URL = s.http.URL
	t.Cleanup(s.http.Close)
	return s
}

// listing lists as S3 does: an empty delimiter is none, and a page begins after its marker, whether there is such an object or not.
type listing struct{ *s3mem.Backend }

func (l listing) ListBucket(ctx context.Context, name string, prefix *gofakes3.Prefix, page gofakes3.ListBucketPage) (*gofakes3.ObjectList, error) {
	if prefix != nil && prefix.Delimiter == "" {
		prefix.HasDelimiter = false
	}
	list, err := l.Backend.ListBucket(ctx, name, prefix, gofakes3.ListBucketPage{})
	if err != nil {
		return nil, err
	}
	if page.HasMarker {
		list.Contents = slices.DeleteFunc(list.Contents, func(c *gofakes3.Content) bool { return c.Key <= page.Marker })
	}
	if n := int(page.MaxKeys); n > 0 && len(list.Contents) > n {
		list.Contents, list.IsTruncated, list.NextMarker = list.Contents[:n], true, list.Contents[n-1].Key
	}
	return list, nil
}

// cut closes a connection without an answer.
func cut(w http.ResponseWriter) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(err) // of a test: HTTP/2 is not offered
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		tcp.SetLinger(0) //nolint:errcheck // it is closed in any case
	}
	conn.Close()
}

// Certificate returns whom a client has to trust, in DER.
func (s *Server) Certificate() []byte { return s.http.Certificate().Raw }

// Away has the server cut connections instead of answering, or ends that.
func (s *Server) Away(away bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = away
}

// Before has a function be called before each request is served.
func (s *Server) Before(f func(*http.Request)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before = f
}

// SetNow sets the clock by which objects get their times.
func (s *Server) SetNow(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = now
}

// Now implements gofakes3.TimeSource.
func (s *Server) Now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now.IsZero() {
		return time.Now()
	}
	return s.now
}

// Since implements gofakes3.TimeSource.
func (s *Server) Since(t time.Time) time.Duration { return s.Now().Sub(t) }

// Requests returns what was asked for until now, such as "PUT /artifacts/key".
func (s *Server) Requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Objects returns the content of all objects by their keys.
func (s *Server) Objects(t testing.TB) map[string][]byte {
	t.Helper()
	ctx := context.Background()
	list, err := s.backend.ListBucket(ctx, Bucket, &gofakes3.Prefix{}, gofakes3.ListBucketPage{})
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]byte{}
	for _, c := range list.Contents {
		o, err := s.backend.GetObject(ctx, Bucket, c.Key, nil)
		if err != nil {
			t.Fatal(err)
		}
		if all[c.Key], err = io.ReadAll(o.Contents); err != nil {
			t.Fatal(err)
		}
		o.Contents.Close()
	}
	return all
}

// Keys returns the keys of all objects, sorted.
func (s *Server) Keys(t testing.TB) []string {
	t.Helper()
	return slices.Sorted(maps.Keys(s.Objects(t)))
}

// Put stores an object, as the bucket's owner can.
func (s *Server) Put(t testing.TB, key string, content []byte) {
	t.Helper()
	meta := map[string]string{"Last-Modified": s.Now().UTC().Format(http.TimeFormat)}
	if _, err := s.backend.PutObject(context.Background(), Bucket, key, meta, bytes.NewReader(content), int64(len(content))); err != nil {
		t.Fatal(err)
	}
}

// Remove removes an object, as the bucket's owner can.
func (s *Server) Remove(t testing.TB, key string) {
	t.Helper()
	if _, err := s.backend.DeleteObject(context.Background(), Bucket, key); err != nil {
		t.Fatal(err)
	}
}
