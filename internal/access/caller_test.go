package access

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
)

func callerText(t *testing.T, c Caller) string {
	t.Helper()
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// No door takes somebody's word for who asks.
func TestForgedCaller(t *testing.T) {
	f := newFixture(t, Settings{})
	forged := callerText(t, Caller{Name: "root", Role: Operate, Door: Socket, Remote: "uid 0"})
	var seen http.Header
	inner := f.guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = r.Header
		p, ok := From(r.Context())
		if ok != (r.Header.Get("Authorization") != "") || ok && p.Role != Read || Passed(r.Context()) {
			t.Errorf("principal %+v, passed %v", p, Passed(r.Context()))
		}
	}))
	for _, with := range [][]string{nil, {"Authorization", "Bearer " + f.text[Read]}} {
		seen = nil
		inner.ServeHTTP(httptest.NewRecorder(), request("GET", "/v1/me", append([]string{CallerHeader, forged}, with...)...))
		if seen == nil || len(seen.Values(CallerHeader)) != 0 {
			t.Errorf("with %v the header came through: %v", with, seen)
		}
	}
	// ByDoor looks at what TakeCaller has found, never at the header.
	w := httptest.NewRecorder()
	ByDoor(f.guard, f.guard, http.HandlerFunc(Me)).ServeHTTP(w, request("GET", "/v1/me", CallerHeader, forged))
	if w.Code != http.StatusUnauthorized {
		t.Errorf("a forged caller is answered %d %s", w.Code, w.Body)
	}
}

// What another scheduler passes on is done in the name of its caller: the principal,
// the rate and what is told of refusals are those of a request that came here.
func TestTakeCaller(t *testing.T) {
	f := newFixture(t, Settings{PerSecond: 0.001, Burst: 2})
	socket, err := NewGuard(GuardConfig{Door: Socket})
	if err != nil {
		t.Fatal(err)
	}
	anna := Caller{Name: "anna", Role: Submit, Door: TCP, Remote: "192.0.2.7:4000"}
	var remote string
	h := TakeCaller(ByDoor(socket, f.guard, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		remote = r.RemoteAddr
		if got, ok := CallerOf(r.Context()); !ok || !Passed(r.Context()) || r.Header.Get(CallerHeader) != "" && got.Name == "" {
			t.Errorf("caller %+v, %v", got, ok)
		} else {
			w.Header().Set("X-Caller", callerText(t, got))
		}
		if err := Authorize(r.Context(), r, string(Operate)); err != nil {
			err.(*Refused).write(w)
		}
	})))
	ask := func(c Caller) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, request("POST", "/v1/pause", CallerHeader, callerText(t, c)))
		return w
	}
	for i, want := range []int{http.StatusForbidden, http.StatusForbidden, http.StatusTooManyRequests} {
		if w := ask(anna); w.Code != want || i < 2 && w.Header().Get("X-Caller") != callerText(t, anna) {
			t.Errorf("request %d: %d %v %s", i, w.Code, w.Header(), w.Body)
		}
	}
	if remote != anna.Remote {
		t.Errorf("it comes from %s", remote)
	}
	want := []Refusal{
		{Door: TCP, Remote: anna.Remote, Name: "anna", Method: "POST", Path: "/v1/pause", Status: 403},
		{Door: TCP, Remote: anna.Remote, Name: "anna", Method: "POST", Path: "/v1/pause", Status: 403},
		{Door: TCP, Remote: anna.Remote, Name: "anna", Method: "POST", Path: "/v1/pause", Status: 429},
	}
	got := f.told()
	for i := range got {
		got[i].Why, got[i].Role = "", ""
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("told of\n%+v, want\n%+v", got, want)
	}
	// A visitor may do nothing that needs a role.
	if w := ask(Caller{Name: "a link", Role: Visitor, Door: TCP, Remote: "192.0.2.9:1"}); w.Code != http.StatusForbidden {
		t.Errorf("a visitor: %d %s", w.Code, w.Body)
	}
	// Others have a rate of their own, and the socket none.
	if w := ask(Caller{Name: "ben", Role: Operate, Door: Browser, Remote: "192.0.2.8:1"}); w.Code != http.StatusOK {
		t.Errorf("ben: %d %s", w.Code, w.Body)
	}
	for range 5 {
		if w := ask(Caller{Name: "root", Role: Operate, Door: Socket, Remote: "uid 0"}); w.Code != http.StatusOK {
			t.Errorf("root: %d %s", w.Code, w.Body)
		}
	}
}

func TestBadCaller(t *testing.T) {
	h := TakeCaller(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it came through") }))
	for text, want := range map[string]string{
		"":  "0 times",
		"{": "JSON",
		`{"name":"a","role":"read","door":"tcp","more":1}`:      "more",
		`{"name":"a","role":"root","door":"tcp"}`:               `"root"`,
		`{"name":"a","role":"read","door":"window"}`:            `"window"`,
		`{"role":"read","door":"tcp"}`:                          "name",
		`{"name":"` + strings.Repeat("a", 5000) + `","role":1}`: "at most",
	} {
		r := request("GET", "/v1/me")
		if text != "" {
			r.Header.Set(CallerHeader, text)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if p := problemIn(t, w.Result()); w.Code != 400 || p.Name() != badCaller || !strings.Contains(p.Detail, want) {
			t.Errorf("%.60q: %d %+v, want a word on %s", text, w.Code, p, want)
		}
	}
	r := request("GET", "/v1/me", CallerHeader, "{}", CallerHeader, "{}")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != 400 {
		t.Errorf("two callers: %d", w.Code)
	}
}
