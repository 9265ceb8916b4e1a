package access

import (
	"net/http"
	"strings"
	"testing"
)

// Whatever the header Authorization says, only a token of ours lets in.
func FuzzAuthorization(f *testing.F) {
	x := newFixture(f, Settings{})
	x.guard.onRefused = nil
	good := map[string]bool{}
	for _, text := range x.text {
		good[text] = true
		for _, s := range []string{"Bearer " + text, "bearer   " + text + " ", "Bearer " + text + "\x00", "Bearer " + text[:30], "Bearer " + strings.ToUpper(text), "Basic " + text, text} {
			f.Add(s)
		}
	}
	for _, s := range []string{"", " ", "Bearer", "Bearer agsk_", "Bearer agsk_aaaaaaaa_", "\xff\xfe", "Bearer agsk_________________________________________________________"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, header string) {
		resp := x.do(request("GET", "/v1/jobs", "Authorization", header))
		scheme, token, _ := strings.Cut(header, " ")
		let := good[strings.Trim(token, " ")] && strings.EqualFold(scheme, "bearer")
		if let != (resp.StatusCode == http.StatusOK) || !let && resp.StatusCode != 401 && resp.StatusCode != 429 {
			t.Errorf("%q: %s, %q", header, resp.Status, principalIn(resp))
		}
	})
}

// Whatever cookies say, only a session of ours is somebody's.
func FuzzCookie(f *testing.F) {
	x := newFixture(f, Settings{})
	secret, err := x.sessions.create(f.Context(), "ada", Operate)
	if err != nil {
		f.Fatal(err)
	}
	for _, s := range []string{
		"", "=", ";", "agentsched_session", "agentsched_session=", "agentsched_session=" + secret, `agentsched_session="` + secret + `"`, "agentsched_session=" + secret[:42], "agentsched_session=" + secret + "A",
		"__Host-agentsched=" + secret, strings.Repeat("agentsched_session=x; ", 20) + "agentsched_session=" + secret, "\xff=\x00",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, header string) {
		resp := x.do(request("GET", "/v1/jobs", "Cookie", header))
		if who := principalIn(resp); resp.StatusCode != 200 || who != nobody && !strings.Contains(header, secret) {
			t.Errorf("%q: %s, %q", header, resp.Status, who)
		}
	})
}
