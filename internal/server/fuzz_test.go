package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/api"
)

// asProblem reads a problem strictly.
func asProblem(text []byte) (p api.Problem, err error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	err = dec.Decode(&p)
	if err == nil && (p.Name() == "" || p.Title == "" || p.Status < 400 || p.Detail == "") {
		err = errors.New("it says too little")
	}
	return p, err
}

// bodies are those that a fuzzer begins with.
var bodies = []string{
	``, `{}`, `[]`, `null`, `"x"`, `{"a":`, `{"jobs":[]}`, `{"jobs":[{}]}`, `{"jobs":null,"workflow":{"teams":[{}]}}`,
	`{"source":"s","digest":"d","jobs":[{"id":"a","tenant":"t","type":"TOOL","worker":"shell","instructions":"true","workspace":{"isolation":"none"},"limits":{"timeout":"1m"},"flow":{"needs":["a"]}}]}`,
	`{"jobs":[{"id":"a","tenant":"t","type":"TOOL","worker":"shell","instructions":"true","workspace":{"isolation":"none"},"flow":{"for_each":{"items":[1,2],"max":3}}},{"id":"b","type":"LLM"}],"workflow":{"pipelines":[{"id":"p","stages":[{"id":"s","job":"a"}]}]}}`,
	`{"letters":[{"id":"x","spec":{}}],"reset_session":true}`, `{"ids":["x","x"]}`, `{"scope":"worker:codex","for":"1h"}`, `{"scope":"global","reason":"` + strings.Repeat("r", 100) + `"}`,
	`{"core":1,"drain":true}`, `{"approved":true,"by":"x"}`, `{"approved":false}`, `{"by":"x","quality":0.5}`, `{"tenant":"t","tokens":1,"window":"1h"}`, `{"tenant":"t","tokens":1e300}`,
	`{"stage":"s","from":-1}`, `{"mode":"drain","program":"relative"}`, `{"role":"king"}`, `{"reason":"x"}`, `{"name":"x","text":"y","dir":"z"}`,
	`{"jsonrpc":"2.0","id":1,"method":"kernel.sched.enqueue","params":{"tenant":"","payload":1}}`, `[{"jsonrpc":"2.0","method":"kernel.sched.claim","params":{"worker_id":"w","max_n":-1}}]`,
	"{\"scope\":\"\xff\"}", `{"scope":"\ud800"}`, `{"jobs":[{"output":{"$ref":"#"},"payload":[[[]]]}]}`,
}

// FuzzBodies: whatever body a route is sent, the answer is no failure of ours, and
// where it is a refusal it is a problem.
func FuzzBodies(f *testing.F) {
	d := world(f)
	h := d.server.Handler()
	type target struct{ method, path string }
	var targets []target
	doc := d.document()
	for _, path := range slices.Sorted(maps.Keys(doc.Paths)) {
		for _, method := range []string{http.MethodPost, http.MethodPut} {
			if _, ok := doc.Paths[path][strings.ToLower(method)]; ok {
				targets = append(targets, target{method, strings.NewReplacer("{job}", string(d.last), "{pipeline}", "p").Replace(path)})
			}
		}
	}
	for i := range targets {
		for _, body := range bodies {
			f.Add(uint8(i), []byte(body))
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, body []byte) {
		to := targets[int(which)%len(targets)]
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		r := httptest.NewRequestWithContext(ctx, to.method, to.path, bytes.NewReader(body))
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		switch {
		case ctx.Err() != nil:
			t.Errorf("%s %s %q: no answer within a minute", to.method, to.path, body)
		case w.Code/100 == 4, w.Code == http.StatusServiceUnavailable:
			problemIn(t, w.Result())
		case w.Code/100 != 2 || w.Code != http.StatusNoContent && !json.Valid(w.Body.Bytes()):
			t.Errorf("%s %s %q: %d %s", to.method, to.path, body, w.Code, w.Body)
		}
	})
}
