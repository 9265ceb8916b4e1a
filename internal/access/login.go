package access

import (
	"io"
	"maps"
	"net/http"
	"strings"
)

// cookieName is that of the session's cookie. Browsers take one that begins with
// __Host- only over TLS, from this very host and for all its paths.
func cookieName(r *http.Request) string {
	if r.TLS != nil {
		return "__Host-agentsched"
	}
	return "agentsched_session"
}

func sessionCookie(r *http.Request, value string, maxAge int) *http.Cookie {
	return &http.Cookie{
		Name: cookieName(r), Value: value, Path: "/", MaxAge: maxAge,
		HttpOnly: true, Secure: r.TLS != nil, SameSite: http.SameSiteStrictMode,
	}
}

// maxCookies is how many cookies of the session's name are looked at: servers on
// other ports of the same host can add some.
const maxCookies = 8

// sessionSecrets returns what the request's cookies say.
func sessionSecrets(r *http.Request) []string {
	var list []string
	for _, c := range r.CookiesNamed(cookieName(r)) {
		if list = append(list, c.Value); len(list) == maxCookies {
			break
		}
	}
	return list
}

// The page is not a redirect: a browser that comes from another site's page would
// follow that without the new cookie, which is for this site alone (SameSite). From
// this page it goes on as this site, and the code leaves the address.
const welcomePage = `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>agent scheduler</title>
<meta http-equiv="refresh" content="0;url=/"></head>
<body><p>You are logged in. <a href="/">Open the dashboard</a></p></body></html>
`

const refusedPage = `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>agent scheduler</title></head>
<body><h1>This link does not work</h1>
<p>A link opens the dashboard once, within five minutes. On the host of the scheduler, run</p>
<pre>scheduler ui</pre>
<p>for a new one.</p></body></html>
`

const strangerPage = `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>agent scheduler</title></head>
<body><h1>This link is not yours</h1>
<p>It is for a browser of the user who runs the scheduler, on the same host.</p></body></html>
`

func page(w http.ResponseWriter, status int, text string) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	w.WriteHeader(status)
	io.WriteString(w, text) //nolint:errcheck // nobody is there to be told
}

// prefetched reports whether the browser only looks ahead: nobody has followed the
// link yet.
func prefetched(r *http.Request) bool {
	for _, name := range []string{"Sec-Purpose", "Purpose", "X-Purpose", "X-Moz"} {
		v := strings.ToLower(strings.Join(r.Header.Values(name), ","))
		if strings.Contains(v, "prefetch") || strings.Contains(v, "prerender") || strings.Contains(v, "preview") {
			return true
		}
	}
	return false
}

// LoginHandler answers GET /login?code=CODE: it exchanges a link's code for the
// cookie of a session, and shows a page that goes on to /. A code that is not valid
// is answered 401, or 429 if there were many, with a page that says how to get one. HEAD, and a browser that
// looks ahead, leave the code as it is. So does somebody whom stranger, if it is not nil,
// reports: a link stands in the arguments of the program that opens it, where every user
// of the host can read it.
func LoginHandler(links *Links, sessions *Sessions, stranger func(*http.Request) bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		switch {
		case r.Method == http.MethodHead:
			return
		case r.Method != http.MethodGet:
			refused(methodNotAllowed, http.StatusMethodNotAllowed, "%s /login is not possible, want GET", r.Method).with("Allow", "GET, HEAD").write(w)
			return
		case prefetched(r):
			refused(unavailable, http.StatusServiceUnavailable, "this link works once, so it is not for looking ahead").write(w)
			return
		case stranger != nil && stranger(r):
			refusePage(w, r, refused(forbidden, http.StatusForbidden, "this link is for another user of this host"), strangerPage)
			return
		}
		l, ok := links.take(r.URL.Query().Get("code"))
		if !ok {
			refusePage(w, r, refused(unauthenticated, http.StatusUnauthorized, "the link is unknown, used or over"), refusedPage)
			return
		}
		for _, old := range sessionSecrets(r) {
			sessions.end(r.Context(), old) //nolint:errcheck // it is over in any case
		}
		secret, err := sessions.create(r.Context(), l.name, l.role)
		if err != nil {
			refused(unavailable, http.StatusServiceUnavailable, "the session cannot be kept: %v", err).write(w)
			return
		}
		http.SetCookie(w, sessionCookie(r, secret, int(sessionLasts.Seconds())))
		page(w, http.StatusOK, welcomePage)
	})
}

// refusePage reports the refusal to the guard, and answers it with a page for people.
func refusePage(w http.ResponseWriter, r *http.Request, e *Refused, text string) {
	if v, guarded := r.Context().Value(visitKey{}).(*visit); guarded {
		e = v.refuse(e)
	}
	maps.Copy(w.Header(), e.header)
	page(w, e.problem.Status, text)
}

// LogoutHandler answers POST /logout: the session is over. A form is sent on to /; a
// script is answered 204.
func LogoutHandler(sessions *Sessions) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		if r.Method != http.MethodPost {
			refused(methodNotAllowed, http.StatusMethodNotAllowed, "%s /logout is not possible, want POST", r.Method).with("Allow", "POST").write(w)
			return
		}
		for _, secret := range sessionSecrets(r) {
			if err := sessions.end(r.Context(), secret); err != nil {
				refused(unavailable, http.StatusServiceUnavailable, "you are logged out, but not beyond a restart of the scheduler: %v", err).write(w)
				return
			}
		}
		http.SetCookie(w, sessionCookie(r, "", -1))
		if r.Header.Get("Sec-Fetch-Mode") == "navigate" {
			http.Redirect(w, r, "/", http.StatusSeeOther)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
}
