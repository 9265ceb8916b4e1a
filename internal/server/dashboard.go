package server

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"
)

// embedded holds the page for browsers and its modules as they are written, without a
// build step and without code from elsewhere. They hold no data: the page fetches all
// that it shows through the API, with the browser's session.
//
//go:embed assets
var embedded embed.FS

// contentPolicy is the Content-Security-Policy of each answer. Nothing is inline, and with
// Trusted Types and no policy that makes them, no text becomes markup or code.
var contentPolicy = strings.Join([]string{
	"default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self' data:", "connect-src 'self'", "font-src 'self'",
	"base-uri 'none'", "form-action 'self'", "frame-ancestors 'none'", "require-trusted-types-for 'script'", "trusted-types 'none'",
}, "; ")

// assetTypes are the MIME types of the files, said here since the host's own table may differ.
var assetTypes = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml; charset=utf-8",
}

const (
	assetsPath = "/assets/"
	indexPage  = "index.html"
)

// asset is one of the files as it is sent.
type asset struct {
	mime string
	etag string
	text []byte
}

// dashboard is all files, by their path below assets.
type dashboard struct {
	version string // a hash over all files: the first folder of their addresses
	files   map[string]asset
}

// dashboardRoutes serves the page at "/", its files below "/assets/", each also below
// "/assets/HASH/", where it never changes.
type dashboardRoutes struct{}

func (dashboardRoutes) routes(r *router) {
	files := sync.OnceValue(embeddedDashboard) // a command that asks itself needs none
	h := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { files().serve(r, w, req) })
	r.plain(route{id: "get-dashboard", method: "GET", path: "/", role: public, answered: byEach, tag: "dashboard", about: "Return the dashboard, which holds no data."}, "text/html", "/{$}", h)
	r.plain(route{id: "get-asset", method: "GET", path: "/assets/{path}", role: public, answered: byEach, tag: "dashboard", about: "Return a file of the dashboard."}, "*/*", "/assets/", h)
}

func embeddedDashboard() *dashboard {
	assets, err := fs.Sub(embedded, "assets")
	if err == nil {
		var d *dashboard
		if d, err = newDashboard(assets); err == nil {
			return d
		}
	}
	panic(fmt.Sprintf("server: embedded files: %v", err)) // the build holds them, or the build is broken
}

// newDashboard reads all files, and lets the page name them by the address that holds their
// version.
func newDashboard(assets fs.FS) (*dashboard, error) {
	d := &dashboard{files: map[string]asset{}}
	all := sha256.New()
	err := fs.WalkDir(assets, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		mime, ok := assetTypes[path.Ext(name)]
		if !ok {
			return fmt.Errorf("%s: files of this kind are not served, want one of .html, .css, .js, .svg", name)
		}
		text, err := fs.ReadFile(assets, name)
		if err != nil {
			return err
		}
		d.files[name] = asset{mime: mime, etag: etag(text), text: text}
		fmt.Fprintf(all, "%s %d\n", name, len(text))
		all.Write(text)
		return nil
	})
	if err != nil {
		return nil, err
	}
	d.version = hex.EncodeToString(all.Sum(nil)[:8])
	page, ok := d.files[indexPage]
	if !ok {
		return nil, fmt.Errorf("%s is missing", indexPage)
	}
	page.text = bytes.ReplaceAll(page.text, []byte(`"`+assetsPath), []byte(`"`+assetsPath+d.version+"/"))
	page.etag = etag(page.text)
	d.files[indexPage] = page
	return d, nil
}

func etag(text []byte) string {
	sum := sha256.Sum256(text)
	return `"` + hex.EncodeToString(sum[:16]) + `"`
}

func (d *dashboard) serve(r *router, w http.ResponseWriter, req *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", contentPolicy)
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	f, forEver, ok := d.find(req.URL.Path)
	if !ok {
		r.refuse(w, req, newProblem("not_found", http.StatusNotFound, "there is no such file"))
		return
	}
	h.Set("Content-Type", f.mime)
	h.Set("Cache-Control", "no-cache") // kept, and asked about each time
	if forEver {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	h.Set("ETag", f.etag)
	http.ServeContent(w, req, "", time.Time{}, bytes.NewReader(f.text))
}

// find returns the file at an address, and whether that never has another one.
func (d *dashboard) find(address string) (f asset, forEver, ok bool) {
	if address == "/" {
		return d.files[indexPage], false, true
	}
	name, ok := strings.CutPrefix(address, assetsPath)
	if !ok {
		return asset{}, false, false
	}
	name, forEver = strings.CutPrefix(name, d.version+"/")
	f, ok = d.files[name]
	return f, forEver, ok && name != indexPage // the page has one address
}
