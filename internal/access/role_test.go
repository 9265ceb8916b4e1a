package access

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"testing"
)

// Every role against everything that can be asked for: a role has what comes before
// it, and what is unknown is nobody's.
func TestAuthorizeEveryPair(t *testing.T) {
	rank := map[string]int{"read": 1, "submit": 2, "operate": 3}
	for _, have := range []string{"none", "", "admin", "public", "Operate", "read", "submit", "operate"} {
		for _, need := range []string{"public", "read", "submit", "operate", "", "admin", "OPERATE"} {
			ctx := context.Background()
			if have != "none" {
				ctx = With(ctx, Principal{Name: "p", Role: Role(have), Door: TCP})
			}
			want := 403
			switch {
			case need == "public", rank[need] > 0 && rank[have] >= rank[need]:
				want = 200
			case have == "none":
				want = 401
			}
			got, err := 200, Authorize(ctx, nil, need)
			var e *Refused
			if errors.As(err, &e) {
				got = e.Problem().Status
				if (e.Header().Get("WWW-Authenticate") != "") != (got == 401) {
					t.Errorf("%q asks for %q: header %v of a %d", have, need, e.Header(), got)
				}
			}
			if got != want {
				t.Errorf("%q asks for %q: %d (%v), want %d", have, need, got, err, want)
			}
		}
	}
}

func TestParseRole(t *testing.T) {
	for _, role := range Roles() {
		if got, err := ParseRole(string(role)); got != role || err != nil {
			t.Errorf("%s: %q, %v", role, got, err)
		}
	}
	for _, text := range []string{"", "Read", "public", "admin", "read "} {
		if got, err := ParseRole(text); err == nil {
			t.Errorf("%q is role %q", text, got)
		}
	}
}

// Each token is who it was made for at GET /v1/me, and a refusal of a role that is
// too low is told with the name.
func TestMeAndRefusalsAreTold(t *testing.T) {
	f := newFixture(t, Settings{})
	for _, role := range Roles() {
		resp := f.do(request("GET", "/v1/me", "Authorization", "Bearer "+f.text[role]))
		var p map[string]string
		if err := json.NewDecoder(resp.Body).Decode(&p); err != nil || len(p) != 3 || p["name"] != "the-"+string(role) || p["role"] != string(role) || p["door"] != "tcp" {
			t.Errorf("%s: %v, %v", role, p, err)
		}
	}
	if resp := f.do(request("GET", "/v1/me")); resp.StatusCode != 401 || resp.Header.Get("WWW-Authenticate") == "" || problemIn(t, resp).Name() != unauthenticated {
		t.Errorf("without a token: %s", resp.Status)
	}
	h := f.guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := Authorize(r.Context(), r, "operate"); err == nil {
			t.Error("a token to submit may operate")
		}
	}))
	f.handler = h
	f.do(request("POST", "/v1/pause?secret=x", "Authorization", "Bearer "+f.text[Submit]))
	told := f.told()
	if len(told) != 2 {
		t.Fatalf("told %+v", told)
	}
	want := Refusal{Door: TCP, Remote: "127.0.0.1:50000", Name: "the-submit", Method: "POST", Path: "/v1/pause", Status: 403, Why: "this needs role operate, and the-submit has role submit"}
	if told[0].Status != 401 || told[1] != want {
		t.Errorf("told %+v\nwant %+v", told[1], want)
	}
}
