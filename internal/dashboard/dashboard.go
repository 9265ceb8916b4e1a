package dashboard

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"time"
)

//go:embed assets
var embedded embed.FS

// policy is the Content-Security-Policy of each answer. Nothing is inline, and with
// Trusted Types and no policy that makes them, no text becomes markup or code.
var policy = strings.Join([]string{
	"default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self' data:", "connect-src 'self'", "font-src 'self'",
	"base-uri 'none'", "form-action 'self'", "frame-ancestors 'none'", "require-trusted-types-for 'script'", "trusted-types 'none'",
}, "; ")

// mimeTypes are those of the files, said here since the host's own table may differ.
var mimeTypes = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml; charset=utf-8",
}

const (
	prefix    = "/assets/"
	index     = "index.html"
	immutable = "public, max-age=31536000, immutable"
	revalid   = "no-cache" // kept, and asked about each time
)

// file is one of the files as it is sent.
type file struct {
	mime string
	etag string
	text []byte
}

// site is all files, by their path below assets.
type site struct {
	version string // a hash over all files: the first folder of their addresses
	files   map[string]file
}

// Handler serves the dashboard: the page at "/", its files below "/assets/", each
// also below "/assets/HASH/", where it never changes. What is not there is answered
// 404 Not Found, methods other than GET and HEAD 405.
func Handler() http.Handler {
	assets, err := fs.Sub(embedded, "assets")
	if err == nil {
		var s *site
		if s, err = load(assets); err == nil {
			return s
		}
	}
	panic(fmt.Sprintf("dashboard: embedded files: %v", err)) // the build holds them, or the build is broken
}

// load reads all files, and lets the page name them by the address that holds their
// version.
func load(assets fs.FS) (*site, error) {
	s := &site{files: map[string]file{}}
	all := sha256.New()
	err := fs.WalkDir(assets, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		mime, ok := mimeTypes[path.Ext(name)]
		if !ok {
			return fmt.Errorf("%s: files of this kind are not served, want one of .html, .css, .js, .svg", name)
		}
		text, err := fs.ReadFile(assets, name)
		if err != nil {
			return err
		}
		s.files[name] = file{mime: mime, etag: etag(text), text: text}
		fmt.Fprintf(all, "%s %d\n", name, len(text))
		all.Write(text)
		return nil
	})
	if err != nil {
		return nil, err
	}
	s.version = hex.EncodeToString(all.Sum(nil)[:8])
	page, ok := s.files[index]
	if !ok {
		return nil, fmt.Errorf("%s is missing", index)
	}
	page.text = bytes.ReplaceAll(page.text, []byte(`"`+prefix), []byte(`"`+prefix+s.version+"/"))
	page.etag = etag(page.text)
	s.files[index] = page
	return s, nil
}

func etag(text []byte) string {
	sum := sha256.Sum256(text)
	return `"` + hex.EncodeToString(sum[:16]) + `"`
}

// ServeHTTP answers with a file.
func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		refuse(w, http.StatusMethodNotAllowed, "method_not_allowed", "want GET or HEAD")
		return
	}
	f, keep, ok := s.find(r.URL.Path)
	if !ok {
		refuse(w, http.StatusNotFound, "not_found", "there is no such file")
		return
	}
	h.Set("Content-Type", f.mime)
	h.Set("Cache-Control", keep)
	h.Set("ETag", f.etag)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(f.text))
}

// refuse answers with a problem of that name, as the API's routes do (RFC 9457).
func refuse(w http.ResponseWriter, status int, name, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(map[string]any{ //nolint:errcheck // the client has gone
		"type": "urn:agentsched:problem:" + name, "title": http.StatusText(status), "status": status, "detail": detail,
	})
}

// find returns the file at an address and for how long it may be kept.
func (s *site) find(address string) (f file, keep string, ok bool) {
	if address == "/" {
		return s.files[index], revalid, true
	}
	name, ok := strings.CutPrefix(address, prefix)
	if !ok || name == index {
		return file{}, "", false // the page has one address
	}
	keep = revalid
	if rest, versioned := strings.CutPrefix(name, s.version+"/"); versioned {
		name, keep = rest, immutable
	}
	f, ok = s.files[name]
	return f, keep, ok && name != index
}
