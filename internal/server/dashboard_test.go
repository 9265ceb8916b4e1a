package server

import (
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"path"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/job"
)

func askDashboard(t *testing.T, method, address string, header http.Header) (*http.Response, string) {
	t.Helper()
	req := httptest.NewRequest(method, address, nil)
	for name, values := range header {
		req.Header[name] = values
	}
	r := &router{log: zerolog.Nop(), mux: http.NewServeMux(), doc: newDocument("test")}
	dashboardRoutes{}.routes(r)
	w := httptest.NewRecorder()
	r.ServeHTTP(w, req)
	text, err := io.ReadAll(w.Result().Body)
	if err != nil {
		t.Fatal(err)
	}
	return w.Result(), string(text)
}

// assetTexts returns the text of each file under assets, by its path.
func assetTexts(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := fs.WalkDir(embedded, "assets", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(embedded, name)
		all[strings.TrimPrefix(name, "assets/")] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestDashboardSecurityHeaders(t *testing.T) {
	const want = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; font-src 'self'; " +
		"base-uri 'none'; form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
	for _, address := range []string{"/", "/assets/app.js", "/assets/none.js"} {
		r, _ := askDashboard(t, http.MethodGet, address, nil)
		for name, want := range map[string]string{
			"Content-Security-Policy": want, "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer",
			"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
		} {
			if got := r.Header.Get(name); got != want {
				t.Errorf("GET %s: %s is %q, want %q", address, name, got, want)
			}
		}
	}
}

func TestAssetTypes(t *testing.T) {
	for name, want := range map[string]string{
		"/": "text/html; charset=utf-8", "/assets/app.js": "text/javascript; charset=utf-8", "/assets/pages/job.js": "text/javascript; charset=utf-8",
		"/assets/style.css": "text/css; charset=utf-8", "/assets/icon.svg": "image/svg+xml; charset=utf-8",
	} {
		r, text := askDashboard(t, http.MethodGet, name, nil)
		if got := r.Header.Get("Content-Type"); r.StatusCode != http.StatusOK || got != want || text == "" {
			t.Errorf("GET %s: %s, %s, %d bytes; want 200, %s and a text", name, r.Status, got, len(text), want)
		}
	}
}

// TestAssetsAreKept follows the page to its files: they may be kept for ever, because their
// addresses change with them, and the page itself is asked for each time.
func TestAssetsAreKept(t *testing.T) {
	r, page := askDashboard(t, http.MethodGet, "/", nil)
	if got := r.Header.Get("Cache-Control"); got != "no-cache" {
		t.Errorf("GET /: Cache-Control is %q, want no-cache", got)
	}
	tag := r.Header.Get("ETag")
	if r, text := askDashboard(t, http.MethodGet, "/", http.Header{"If-None-Match": {tag}}); r.StatusCode != http.StatusNotModified || text != "" {
		t.Errorf("GET / with its ETag %s: %s and %d bytes, want 304 and none", tag, r.Status, len(text))
	}
	named := regexp.MustCompile(`(?:src|href)="(/assets/[^"]+)"`).FindAllStringSubmatch(page, -1)
	if len(named) < 4 {
		t.Fatalf("the page names %d files, want its styles, scripts and icon", len(named))
	}
	for _, m := range named {
		if !regexp.MustCompile(`^/assets/[0-9a-f]{16}/`).MatchString(m[1]) {
			t.Errorf("the page names %s, want an address that holds a hash", m[1])
		}
		r, _ := askDashboard(t, http.MethodGet, m[1], nil)
		if got := r.Header.Get("Cache-Control"); r.StatusCode != http.StatusOK || got != "public, max-age=31536000, immutable" || r.Header.Get("ETag") == "" {
			t.Errorf("GET %s: %s, Cache-Control %q, ETag %q", m[1], r.Status, got, r.Header.Get("ETag"))
		}
	}
	if r, _ := askDashboard(t, http.MethodGet, "/assets/app.js", nil); r.Header.Get("Cache-Control") != "no-cache" {
		t.Errorf("without its hash a file has Cache-Control %q, want no-cache", r.Header.Get("Cache-Control"))
	}
}

func TestDashboardVersion(t *testing.T) {
	with := func(script string) *dashboard {
		t.Helper()
		s, err := newDashboard(fstest.MapFS{
			"index.html": {Data: []byte(`<script type="module" src="/assets/app.js"></script>`)}, "app.js": {Data: []byte(script)},
		})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	a, b := with("one()"), with("two()")
	if a.version == b.version || a.files[indexPage].etag == b.files[indexPage].etag {
		t.Errorf("another script leaves the version %s and the page's tag %s as they were", a.version, a.files[indexPage].etag)
	}
	if again := with("one()"); again.version != a.version {
		t.Errorf("the same files have the versions %s and %s", a.version, again.version)
	}
	if _, err := newDashboard(fstest.MapFS{"index.html": {}, "notes.txt": {}}); err == nil {
		t.Error("a file of a kind that is not served was taken")
	}
	if _, err := newDashboard(fstest.MapFS{"app.js": {}}); err == nil {
		t.Error("assets without a page were taken")
	}
}

func TestAssetsNotThere(t *testing.T) {
	for _, address := range []string{
		"/assets/none.js", "/assets/", "/assets/pages", "/assets/0123456789abcdef/app.js", "/index.html", "/assets/index.html", "/v1/jobs",
	} {
		if r, _ := askDashboard(t, http.MethodGet, address, nil); r.StatusCode != http.StatusNotFound {
			t.Errorf("GET %s: %s, want 404", address, r.Status)
		}
	}
	if _, _, ok := embeddedDashboard().find("/assets/../dashboard.go"); ok {
		t.Error("a file beside the assets was found")
	}
}

func TestDashboardMethods(t *testing.T) {
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodOptions} {
		if r, _ := askDashboard(t, method, "/", nil); r.StatusCode != http.StatusMethodNotAllowed || r.Header.Get("Allow") != "GET, HEAD" {
			t.Errorf("%s /: %s, Allow %q; want 405 and GET, HEAD", method, r.Status, r.Header.Get("Allow"))
		}
	}
	if r, text := askDashboard(t, http.MethodHead, "/assets/app.js", nil); r.StatusCode != http.StatusOK || text != "" || r.Header.Get("Content-Length") == "" {
		t.Errorf("HEAD: %s, %d bytes, Content-Length %q; want 200, none and the size", r.Status, len(text), r.Header.Get("Content-Length"))
	}
}

// TestNoMarkupFromText keeps what parses markup or runs text out of the scripts, and
// what the policy would block out of the page.
func TestNoMarkupFromText(t *testing.T) {
	parses := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment|DOMParser|setHTMLUnsafe|\beval\(|new Function|javascript:|setTimeout\(['"` + "`" + `]|\.cssText|setAttribute\('style'`)
	inline := regexp.MustCompile(`(?i)<script(?:[^>]*)>\s*[^<\s]|<style|\sstyle\s*=|\son[a-z]+\s*=|https?://`)
	for name, text := range assetTexts(t) {
		if m := parses.FindString(text); m != "" {
			t.Errorf("%s has %q: text reaches the document as text nodes and attributes only", name, m)
		}
		if path.Ext(name) == ".html" {
			if m := inline.FindString(text); m != "" {
				t.Errorf("%s has %q: nothing is inline or from elsewhere", name, m)
			}
		}
	}
}

// TestNothingFromElsewhere follows each import and each address in a style to a file
// that is there.
func TestNothingFromElsewhere(t *testing.T) {
	all := assetTexts(t)
	imports := regexp.MustCompile(`(?m)(?:^import\b[^;'"]*|^export\b[^;'"]*\bfrom\s+|\bimport\()['"]([^'"]+)['"]`)
	seen := 0
	for name, text := range all {
		switch path.Ext(name) {
		case ".js":
			for _, m := range imports.FindAllStringSubmatch(text, -1) {
				seen++
				if target := path.Join(path.Dir(name), m[1]); !strings.HasPrefix(m[1], ".") || all[target] == "" {
					t.Errorf("%s imports %q, which is no file here", name, m[1])
				}
			}
		case ".css":
			if strings.Contains(text, "@import") || strings.Contains(text, "url(") {
				t.Errorf("%s loads something: a style stands alone", name)
			}
		}
	}
	if seen < 20 {
		t.Errorf("found %d imports, want those of all pages: does the pattern still fit?", seen)
	}
}

// TestLinksStayHere: what leaves this origin is nowhere in the scripts. The names of
// XML namespaces and of documents in comments are no addresses to load.
func TestLinksStayHere(t *testing.T) {
	comment := regexp.MustCompile(`(?m)^\s*//.*$|\s//\s.*$`)
	for name, text := range assetTexts(t) {
		if path.Ext(name) != ".js" {
			continue
		}
		for _, m := range regexp.MustCompile(`https?://[^'"\s]+`).FindAllString(comment.ReplaceAllString(text, ""), -1) {
			if m != "http://www.w3.org/2000/svg" {
				t.Errorf("%s names %s", name, m)
			}
		}
	}
}

// TestWordsOfJobs: the pages know each state of a job and each reason to wait, and say
// them in the words of the command line.
func TestWordsOfJobs(t *testing.T) {
	all := assetTexts(t)
	for _, reason := range job.WaitingReasons() {
		if want := fmt.Sprintf("  %s: '%s',\n", reason, reason.Words()); !strings.Contains(all["format.js"], want) {
			t.Errorf("format.js has no line %q", want)
		}
	}
	for _, state := range []job.RunState{job.Pending, job.Running, job.WaitingApproval, job.Checkpointed, job.RunCompleted, job.RunFailed, job.RunCancelled} {
		if want := fmt.Sprintf("\n  %s: [", state); !strings.Contains(all["states.js"], want) {
			t.Errorf("states.js does not draw %s", state)
		}
		if want := fmt.Sprintf("'%s'", state); !strings.Contains(all["pages/jobs.js"], want) {
			t.Errorf("pages/jobs.js does not filter by %s", state)
		}
	}
}
