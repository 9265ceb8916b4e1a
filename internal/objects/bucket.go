package objects

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/agentsched/agentsched/internal/statedir"
)

// Config says which bucket, and by which keys.
type Config struct {
	Endpoint string // such as https://s3.example.com
	Bucket   string
	Prefix   string // of all keys, without a slash at its end; may be empty
	Region   string
	// AccessKey and SecretKey are file:PATH, a file of mode 0600, or env:NAME.
	AccessKey, SecretKey string
	CAFile               string     // PEM; empty: the authorities of the host
	Addressing           Addressing // empty: Auto
}

// Addressing is how a request names the bucket.
type Addressing string

// The ways.
const (
	Auto Addressing = "auto" // Host at services that are known to want it, else Path
	Path Addressing = "path" // https://s3.example.com/bucket/key
	Host Addressing = "host" // https://bucket.s3.example.com/key
)

var lookups = map[Addressing]minio.BucketLookupType{"": minio.BucketLookupAuto, Auto: minio.BucketLookupAuto, Path: minio.BucketLookupPath, Host: minio.BucketLookupDNS}

// ErrNotFound is wrapped where there is no object of a key.
var ErrNotFound = errors.New("there is no such object")

// Bounds of one request.
const (
	connectTime = 5 * time.Second
	// stallTime is how long a connection may neither take nor give a byte.
	stallTime = 20 * time.Second
	// tries counts the first one, too. The waits between them grow from 0.2 s to 1 s.
	tries = 3
)

// Bucket is a bucket, below a prefix. Its methods may be called by several goroutines.
type Bucket struct {
	cfg       Config
	client    *minio.Client
	transport *http.Transport
}

// Open reads the keys and returns the bucket. It connects to nothing. Errors name the field of the configuration.
func Open(cfg Config, getenv func(string) string) (*Bucket, error) {
	access, err := secret("access_key", cfg.AccessKey, getenv)
	if err != nil {
		return nil, err
	}
	key, err := secret("secret_key", cfg.SecretKey, getenv)
	if err != nil {
		return nil, err
	}
	at, err := url.Parse(cfg.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("endpoint: %w", err)
	}
	b := &Bucket{cfg: cfg}
	if b.transport, err = transport(cfg.CAFile); err != nil {
		return nil, err
	}
	b.client, err = minio.New(at.Host, &minio.Options{
		Creds: credentials.NewStaticV4(access, key, ""), Secure: at.Scheme == "https", Transport: b.transport,
		Region: cfg.Region, BucketLookup: lookups[cfg.Addressing], MaxRetries: tries,
	})
	if err != nil {
		return nil, fmt.Errorf("endpoint: %q cannot be used: %w", cfg.Endpoint, err)
	}
	return b, nil
}

// secret returns what a field names: file:PATH or env:NAME. Errors do not repeat it.
func secret(field, where string, getenv func(string) string) (string, error) {
	var text string
	if path, ok := strings.CutPrefix(where, "file:"); ok {
		data, version, err := statedir.ReadPrivate(path)
		if err == nil && version == "" {
			err = fmt.Errorf("open %s: %w", path, os.ErrNotExist)
		}
		if err != nil {
			return "", fmt.Errorf("%s: %w", field, err)
		}
		text = string(data)
	} else if name, ok := strings.CutPrefix(where, "env:"); ok {
		text = getenv(name)
	}
	if text = strings.TrimSpace(text); text == "" {
		return "", fmt.Errorf("%s: %s holds nothing; put the key there", field, where)
	}
	return text, nil
}

func transport(caFile string) (*http.Transport, error) {
	trust := &tls.Config{MinVersion: tls.VersionTLS12}
	if caFile != "" {
		text, err := os.ReadFile(caFile)
		if err != nil {
			return nil, fmt.Errorf("ca_file: %w", err)
		}
		trust.RootCAs = x509.NewCertPool()
		if !trust.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("ca_file: %s has no certificate in PEM", caFile)
		}
	}
	dialer := &net.Dialer{Timeout: connectTime}
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment, TLSClientConfig: trust, TLSHandshakeTimeout: connectTime, ForceAttemptHTTP2: true,
		DisableCompression: true, // objects are compressed as such
		IdleConnTimeout:    stallTime, ExpectContinueTimeout: time.Second,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return stalling{conn}, nil
		},
	}, nil
}

// stalling is a connection whose reads and writes fail after stallTime.
type stalling struct{ net.Conn }

func (c stalling) Read(p []byte) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(stallTime)); err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}

func (c stalling) Write(p []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(stallTime)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// Close closes what connections are idle.
func (b *Bucket) Close() { b.transport.CloseIdleConnections() }

// String returns where the bucket is, for people.
func (b *Bucket) String() string { return strings.TrimSuffix(b.cfg.Endpoint, "/") + "/" + b.full("") }

func (b *Bucket) full(key string) string {
	if b.cfg.Prefix == "" {
		return key
	}
	return b.cfg.Prefix + "/" + key
}

// Put stores size bytes of content under a key: all of them or, with an error, nothing. Content is read again if a
// try fails, so it must be an io.Seeker that starts at its beginning.
func (b *Bucket) Put(ctx context.Context, key string, content io.ReadSeeker, size int64) error {
	_, err := b.client.PutObject(ctx, b.cfg.Bucket, b.full(key), content, size, minio.PutObjectOptions{ContentType: "application/octet-stream", DisableMultipart: true})
	return b.explain("write", key, err)
}

// Open returns the content of an object, which may be endless. The error wraps ErrNotFound if there is none.
func (b *Bucket) Open(ctx context.Context, key string) (io.ReadCloser, error) {
	core := minio.Core{Client: b.client}
	content, _, _, err := core.GetObject(ctx, b.cfg.Bucket, b.full(key), minio.GetObjectOptions{})
	if err != nil {
		return nil, b.explain("read", key, err)
	}
	return content, nil
}

// Remove removes objects; one that is not there is no error.
func (b *Bucket) Remove(ctx context.Context, keys ...string) error {
	var errs []error
	for _, key := range keys {
		err := b.explain("remove", key, b.client.RemoveObject(ctx, b.cfg.Bucket, b.full(key), minio.RemoveObjectOptions{}))
		if err != nil && !errors.Is(err, ErrNotFound) {
			if errs = append(errs, err); len(errs) == maxErrors || ctx.Err() != nil {
				break
			}
		}
	}
	return errors.Join(errs...)
}

// maxErrors is after how many errors Remove gives up.
const maxErrors = 3

// Object is one of a listing.
type Object struct {
	Key      string
	Modified time.Time // by the service's clock
}

// List returns at most n objects whose keys begin with a text and come after one, in the order of their keys.
func (b *Bucket) List(ctx context.Context, begin, after string, n int) (list []Object, err error) {
	opts := minio.ListObjectsOptions{Prefix: b.full(begin), Recursive: true, MaxKeys: n}
	if after != "" {
		opts.StartAfter = b.full(after)
	}
	for o := range b.client.ListObjectsIter(ctx, b.cfg.Bucket, opts) {
		if o.Err != nil {
			return nil, b.explain("list", begin, o.Err)
		}
		key, ours := strings.CutPrefix(o.Key, b.full(""))
		if !ours || !strings.HasPrefix(key, begin) || key <= after { // what the service says is not trusted
			return nil, b.explain("list", begin, fmt.Errorf("the service lists %.200q, which was not asked for", o.Key))
		}
		if list = append(list, Object{key, o.LastModified}); len(list) == n {
			break
		}
	}
	return list, nil
}

// Check writes an object, reads, lists and removes it. The error says which field of the configuration is wrong.
func (b *Bucket) Check(ctx context.Context, key string) error {
	const text = "written by a check\n"
	if err := b.Put(ctx, key, strings.NewReader(text), int64(len(text))); err != nil {
		return err
	}
	err := b.found(ctx, key, text)
	return errors.Join(err, b.Remove(ctx, key))
}

func (b *Bucket) found(ctx context.Context, key, text string) error {
	content, err := b.Open(ctx, key)
	if err != nil {
		return err
	}
	defer content.Close()
	if got, err := io.ReadAll(io.LimitReader(content, int64(len(text))+1)); err != nil || string(got) != text {
		return b.explain("read", key, errors.Join(err, errors.New("what was written a moment ago reads otherwise")))
	}
	list, err := b.List(ctx, key, "", 1)
	if err == nil && !slices.ContainsFunc(list, func(o Object) bool { return o.Key == key }) {
		err = b.explain("list", key, errors.New("what was written a moment ago is not listed"))
	}
	return err
}
