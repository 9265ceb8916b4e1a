package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/scheduler"
)

// operation is one of the OpenAPI document.
type operation struct {
	id, method, path, role string
	body                   string
}

// bodies are what operations that change something are sent: each would do
// something, or be refused for what it says, if it came through.
func bodies() map[string]string {
	return map[string]string{
		"submit-jobs":          `{"source":"s","jobs":[{"name":"new","tenant":"tests","type":"TOOL","worker":"shell","instructions":"true","workspace":{"isolation":"none"}}]}`,
		"put-parcel":           `not what the digest says`,
		"submit-job-file":      `{"text":"tenant: tests\njobs: [{id: another, worker: shell, instructions: 'true'}]"}`,
		"cancel-job":           `{}`,
		"cancel-key":           `{"key":"none"}`,
		"retry-job":            `{}`,
		"answer-job":           `{"approve":true}`,
		"checkpoint-job":       `{"reason":"no"}`,
		"evaluate-job":         `{"score":1}`,
		"requeue-dead-letters": `{"letters":[{"id":"none"}]}`,
		"drop-dead-letters":    `{"ids":["none"]}`,
		"set-grant":            `{}`,
		"pause":                `{"scope":"worker:claude","for":"1s"}`,
		"resume":               `{"scope":"global"}`,
		"restart-cores":        `{"core":99}`,
		"cordon-node":          `{"why":"no"}`,
		"uncordon-node":        `{}`,
		"drain-node":           `{"mode":"stop"}`,
		"remove-node":          `{}`,
		"reload":               `{}`,
		"upgrade":              `{"mode":"checkpoint","program":"/bin/false"}`,
		"new-ui-link":          `{"role":"operate"}`,
		"replay-stage":         `{}`,
		"replay-pipeline":      `{}`,
		"tell-job":             `{"text":"no"}`,
		"fork-job":             `{"text":"no"}`,
		"interrupt-job":        `{}`,
		"take-job-over":        `{}`,
		"hand-job-back":        `{}`,
		"answer-question":      `{"decision":"allow"}`,
		"allow-run":            `{"entry":"none.example"}`,
		"revoke-run-grant":     `{"entry":"none.example","tenant":"none"}`,
		"top-up-credits":       `{"tenant":"none","credits":1}`,
		"drop-credits":         `{"tenant":"none"}`,
		"open-run":             `{"source":"s","digest":"d","jobs":[]}`,
		"continue-run":         `{}`,
		"stop-run":             `{}`,
		"close-run":            `{}`,
		"use-link":             `code=none`,
		"send-mcp":             `{"jsonrpc":"2.0","id":1,"method":"ping"}`,
		"end-mcp":              `{}`,
		"call":                 `{"jsonrpc":"2.0","id":1,"method":"kernel.sched.none"}`,
	}
}

// operations returns all of the document.
func operations(t *testing.T, d *door) (list []operation) {
	t.Helper()
	answer := d.ask(http.MethodGet, "/openapi.json", "")
	var doc struct {
		Paths map[string]map[string]struct {
			ID   string `json:"operationId"`
			Role string `json:"x-role"`
		}
	}
	if err := json.Unmarshal([]byte(answer.body), &doc); err != nil {
		t.Fatalf("the document: %v", err)
	}
	known := bodies()
	for path, methods := range doc.Paths {
		for method, op := range methods {
			o := operation{id: op.ID, method: strings.ToUpper(method), path: path, role: op.Role, body: known[op.ID]}
			if (o.method == http.MethodGet) != (o.body == "") || !slices.Contains([]string{"public", "read", "submit", "operate", "node"}, o.role) {
				t.Errorf("%s %s (%s, role %q): the test knows no body for it, or no role", o.method, path, o.id, o.role)
			}
			list = append(list, o)
		}
	}
	slices.SortFunc(list, func(x, y operation) int { return strings.Compare(x.id, y.id) })
	return list
}

// at fills the parameters of the path: job is for {job}.
func (o *operation) at(job string) string {
	return strings.NewReplacer("{job}", job, "{attempt}", "1", "{name}", "stdout", "{batch}", "none", "{pipeline}", "none", "{path}", "none", "{digest}", strings.Repeat("a", 64)).Replace(o.path)
}

// TestDoorRoles: whoever walks through all operations of the document gets where
// its role allows, and nowhere else; what is refused has changed nothing.
func TestDoorRoles(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("many who are refused need many addresses, and loopback has them on Linux only")
	}
	b := newBench(t)
	b.listenTCP()
	tokens := map[string]string{"wrong secret": "", "none": ""}
	for _, role := range []string{"read", "submit", "operate", "node"} {
		tokens[role] = b.token(role+"er", role)
	}
	tokens["revoked"], tokens["expired"] = b.token("revoked", "operate"), b.token("expired", "operate", "--expires", "1s")
	good := tokens["operate"]
	tokens["wrong secret"] = good[:len(good)-4] + strings.Map(func(r rune) rune { return map[bool]rune{true: 'B', false: 'A'}[r == 'A'] }, good[len(good)-4:])
	r := b.serve()
	base, _ := b.link()
	if _, errs, code := b.command("token", "revoke", "revoked"); code != 0 {
		b.fatalf("token revoke: exit code %d\n%s", code, errs)
	}
	b.submit(b.jobs(tomorrow()))
	own := b.socketDoor()
	ops := operations(t, own)
	requests := 0
	// Each comes from an address of its own: one that is refused again and again is
	// answered 429.
	from := func() *door {
		requests++
		return b.tcpDoor(base, fmt.Sprintf("127.9.%d.%d", requests/250, 1+requests%250))
	}
	bearer := func(who string) []string {
		if tokens[who] == "" {
			return nil
		}
		return []string{"Authorization", "Bearer " + tokens[who]}
	}
	for _, who := range []string{"revoked", "expired"} {
		b.eventually(who+" tokens are refused", func() bool {
			a := from().ask(http.MethodGet, "/v1/me", "", bearer(who)...)
			return a.status == http.StatusUnauthorized
		})
	}

	order := []string{"public", "read", "submit", "operate"}
	covers := func(have, need string) bool {
		switch {
		case need == "public":
			return true
		case need == "node" || have == "node": // it is beside the others
			return have == need
		}
		return slices.Index(order, have) >= slices.Index(order, need)
	}
	r.awaitCore(1) // it is in the snapshot
	before := b.snapshot(own)
	refusals := 0
	walk := func(who, have string, invalid bool) {
		for _, o := range ops {
			what := fmt.Sprintf("%s: %s %s", who, o.method, o.path)
			if !invalid && covers(have, o.role) {
				continue
			}
			a := from().ask(o.method, o.at("tomorrow"), o.body, bearer(who)...)
			want := http.StatusForbidden
			if invalid || have == "public" {
				want = http.StatusUnauthorized
			}
			if a.status != want {
				t.Errorf("%s, which needs %s, is answered %d, want %d", what, o.role, a.status, want)
			}
			a.problem(t, what)
			refusals++
		}
	}
	for _, who := range []string{"revoked", "expired", "wrong secret"} {
		walk(who, "public", true)
	}
	walk("none", "public", false)
	for _, who := range []string{"read", "submit", "operate", "node"} {
		walk(who, who, false)
	}
	if after := b.snapshot(own); after != before {
		t.Errorf("what was refused has changed something: %s\nbefore: %s", after, before)
	}

	allowed := 0
	pass := func(who string, d func() *door, have string) {
		for _, o := range ops {
			if !covers(have, o.role) {
				continue
			}
			what := fmt.Sprintf("%s: %s %s", who, o.method, o.path)
			a := d().ask(o.method, o.at("none-such"), o.body, bearer(who)...)
			allowed++
			switch {
			case o.id == "join-as-node": // asks for no WebSocket
				if a.status != http.StatusBadRequest {
					t.Errorf("%s is answered %d: %s", what, a.status, a.body)
				}
			case o.id == "log-in": // is answered with a page, for who has no link that works
				if a.status != http.StatusUnauthorized || !strings.HasPrefix(a.header.Get("Content-Type"), "text/html") {
					t.Errorf("%s: %d %s", what, a.status, a.header.Get("Content-Type"))
				}
			case o.id == "show-link": // likewise
				if a.status != http.StatusNotFound && a.status != http.StatusTooManyRequests {
					t.Errorf("%s: %d %s", what, a.status, a.body)
				}
			case a.status == http.StatusUnauthorized || a.status == http.StatusForbidden:
				t.Errorf("%s, which needs %s, is answered %d: %s", what, o.role, a.status, a.body)
			case a.status >= 500 && a.status != http.StatusServiceUnavailable:
				t.Errorf("%s is answered %d: %s", what, a.status, a.body)
			case a.status/100 != 2 && o.id != "get-readiness":
				a.problem(t, what)
			}
		}
	}
	pass("none", from, "public")
	for _, who := range []string{"read", "submit", "operate", "node"} {
		pass(who, from, who)
	}
	pass("none", func() *door { return own }, "operate") // the owner, by the unix socket
	t.Logf("%d operations, %d requests refused, %d allowed", len(ops), refusals, allowed)
	r.stop()
	b.soundState()
}

// snapshot tells of everything that requests could change.
func (b *bench) snapshot(d *door) string {
	b.t.Helper()
	var st scheduler.Status
	var jobs api.Jobs
	for path, into := range map[string]any{"/v1/status": &st, "/v1/jobs?limit=1000": &jobs} {
		a := d.ask(http.MethodGet, path, "")
		if err := json.Unmarshal([]byte(a.body), into); err != nil {
			b.fatalf("%s: %v\n%s", path, err, a.body)
		}
	}
	for i := range jobs.Jobs {
		jobs.Jobs[i].Waiting = "" // is told anew now and then
	}
	pids := ""
	for _, c := range st.Cores {
		pids += fmt.Sprintf(" %d", c.PID)
	}
	grants := d.ask(http.MethodGet, "/v1/grants", "")
	return fmt.Sprintf("pid %d, started %s, stopping %t, cores%s, isolations %s, jobs %s, grants %s",
		st.PID, st.Started, st.Stopping, pids, asJSON(b.t, st.Isolations), asJSON(b.t, jobs), grants.body)
}

// TestDoorForeignPages: a page of another site gets nothing done through a browser
// that is logged in, by whatever name it calls the scheduler.
func TestDoorForeignPages(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.listenTCP()
	r := b.serve()
	base, link := b.link()
	d := b.tcpDoor(base, "")
	login := d.ask(http.MethodGet, link.RequestURI(), "")
	cookies, err := http.ParseSetCookie(login.header.Get("Set-Cookie"))
	if err != nil || login.status != http.StatusOK || !cookies.HttpOnly || cookies.SameSite != http.SameSiteStrictMode {
		b.fatalf("log in: %d, %v, %v", login.status, cookies, err)
	}
	cookie := cookies.Name + "=" + cookies.Value
	if again := d.ask(http.MethodGet, link.RequestURI(), ""); again.status != http.StatusUnauthorized || again.header.Get("Set-Cookie") != "" {
		t.Errorf("a link that was used is answered %d", again.status)
	}
	host := strings.TrimPrefix(base, "http://")
	pause := `{"scope":"worker:claude"}`
	for _, c := range []struct {
		name, method, path string
		headers            []string
		want               int
	}{
		{"the name of another site", "POST", "/v1/pause", []string{"Host", "evil.example"}, http.StatusMisdirectedRequest},
		{"that name with our port", "GET", "/v1/jobs", []string{"Host", "evil.example" + host[strings.LastIndex(host, ":"):]}, http.StatusMisdirectedRequest},
		{"that name for the dashboard", "GET", "/", []string{"Host", "evil.example"}, http.StatusMisdirectedRequest},
		{"another port", "GET", "/v1/jobs", []string{"Host", "127.0.0.1:1"}, http.StatusMisdirectedRequest},
		{"a form of another site", "POST", "/v1/pause", []string{"Sec-Fetch-Site", "cross-site", "Origin", "http://evil.example"}, http.StatusForbidden},
		{"one of an old browser", "POST", "/v1/pause", []string{"Origin", "http://evil.example"}, http.StatusForbidden},
		{"a page on another port of this host", "POST", "/v1/pause", []string{"Sec-Fetch-Site", "same-site", "Origin", "http://127.0.0.1:1"}, http.StatusForbidden},
		{"a page without an origin", "POST", "/v1/pause", []string{"Origin", "null"}, http.StatusForbidden},
		{"a script that reads", "GET", "/v1/jobs", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors"}, http.StatusForbidden},
		{"one that listens", "GET", "/v1/stream", []string{"Origin", "http://evil.example"}, http.StatusForbidden},
	} {
		a := d.ask(c.method, c.path, map[string]string{"POST": pause}[c.method], append(c.headers, "Cookie", cookie)...)
		if a.status != c.want {
			t.Errorf("%s is answered %d, want %d: %s", c.name, a.status, c.want, a.body)
			continue
		}
		a.problem(t, c.name)
	}
	if st := b.status(); len(st.Isolations) != 0 {
		t.Errorf("somebody else's page has paused something: %s", asJSON(t, st.Isolations))
	}
	// The dashboard's own page may.
	if a := d.ask("POST", "/v1/pause", pause, "Cookie", cookie, "Origin", base, "Sec-Fetch-Site", "same-origin"); a.status != http.StatusOK {
		t.Errorf("our own page is answered %d: %s", a.status, a.body)
	}
	if st := b.status(); len(st.Isolations) != 1 {
		t.Errorf("the pause of our own page: %s", asJSON(t, st.Isolations))
	}
	r.stop()
	b.soundState()
}

// TestDoorBeyondLoopback: an address that other hosts reach needs TLS and a token;
// with both the command line works over it.
func TestDoorBeyondLoopback(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	cert, key := b.certificate()
	refused := func(what string, api obj, words ...string) {
		t.Helper()
		b.config["api"] = api
		r := b.start("serve")
		r.exit(2)
		for _, w := range words {
			if said := r.stderr.String(); !strings.Contains(said, w) {
				t.Errorf("%s: serve says\n%s, want a word on %q", what, said, w)
			}
		}
	}
	secured := obj{"listen": "0.0.0.0:0", "tls": obj{"cert": cert, "key": key}}
	refused("without TLS", obj{"listen": "0.0.0.0:0"}, "api.tls", "api.listen")
	refused("without a token", secured, "scheduler token create")
	b.token("expiring", "read", "--expires", "1s")
	b.eventually("the only token is over", func() bool {
		out, _, _ := b.command("token", "ls")
		return strings.Contains(out, "expired")
	})
	refused("with a token that is over", secured, "scheduler token create")

	token := b.token("remote", "submit")
	r := b.serve()
	base, _ := b.link()
	if !strings.HasPrefix(base, "https://localhost:") {
		b.fatalf("the link leads to %s", base)
	}
	b.submit(b.jobs(shell("far", nil, "true", nil)))
	r.end("far", "completed")
	ask := func(env []string, args ...string) (string, string, int) {
		here := b.env
		b.env = append(slices.Clone(b.env), env...)
		defer func() { b.env = here }()
		return b.remote(append([]string{"--server", base}, args...)...)
	}
	good := []string{"AGENTSCHED_TOKEN=" + token}
	if out, errs, code := ask(good, "--ca", cert, "ls", "--json"); code != 0 || !strings.Contains(out, `"far"`) {
		t.Errorf("ls: exit code %d\n%s%s", code, out, errs)
	}
	if out, errs, code := ask(good, "ls"); code == 0 || !strings.Contains(errs, "certificate") {
		t.Errorf("ls without --ca: exit code %d\n%s%s", code, out, errs)
	}
	if out, errs, code := ask([]string{"AGENTSCHED_TOKEN=" + token + "x"}, "--ca", cert, "ls"); code == 0 || out != "" || strings.Contains(errs, token) {
		t.Errorf("ls with a wrong token: exit code %d\n%s%s", code, out, errs)
	}
	if out, errs, code := ask(good, "--ca", cert, "pause"); code == 0 || !strings.Contains(errs, "operate") {
		t.Errorf("pause with the role submit: exit code %d\n%s%s", code, out, errs)
	}
	if _, err := b.tcpDoor("http"+strings.TrimPrefix(base, "https"), "").try(t.Context(), http.MethodGet, "/v1/me", "", "Authorization", "Bearer "+token); err == nil {
		a := b.tcpDoor("http"+strings.TrimPrefix(base, "https"), "").ask(http.MethodGet, "/v1/me", "", "Authorization", "Bearer "+token)
		if a.status/100 == 2 {
			t.Errorf("in clear text it is answered %d: %s", a.status, a.body)
		}
	}
	r.stop()
	b.soundState()
}
