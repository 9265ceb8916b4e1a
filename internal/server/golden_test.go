package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/server"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the answers in testdata")

// golden compares text with a file of testdata, or writes it with -rewrite.
func golden(t *testing.T, name, text string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Errorf("%v; -rewrite writes it", err)
	} else if string(want) != text {
		t.Errorf("%s differs, -rewrite writes it; got:\n%s", file, text)
	}
}

// exchange is a request of the golden answers.
type exchange struct {
	request string // METHOD PATH
	header  []string
	body    string
	// during is what happens while the answer, a stream, goes on.
	during func()
}

// transcript is what was asked of one route and answered, as its golden file has it.
type transcript struct{ strings.Builder }

// ask sends the request to the handler and writes down both sides. It returns the
// pattern of the route that answered, and the body.
func (tr *transcript) ask(t *testing.T, h http.Handler, x exchange) (pattern string, answer []byte) {
	t.Helper()
	method, path, _ := strings.Cut(x.request, " ")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := httptest.NewRequestWithContext(ctx, method, path, strings.NewReader(x.body))
	fmt.Fprintf(tr, "> %s\n", x.request)
	for i := 0; i < len(x.header); i += 2 {
		r.Header.Set(x.header[i], x.header[i+1])
		fmt.Fprintf(tr, "> %s: %s\n", x.header[i], x.header[i+1])
	}
	if x.body != "" {
		fmt.Fprintf(tr, "> %s\n", x.body)
	}
	w := httptest.NewRecorder()
	if x.during != nil {
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			h.ServeHTTP(w, r)
		}()
		synctest.Wait()
		x.during()
		synctest.Wait()
		cancel()
		<-answered
	} else {
		h.ServeHTTP(w, r)
	}
	fmt.Fprintf(tr, "< %d\n", w.Code)
	tag := w.Header().Get("ETag")
	if tag != "" {
		w.Header().Set("ETag", "(of the content)")
		w.Header().Set("Content-Length", "(of the content)")
	}
	for _, name := range slices.Sorted(maps.Keys(w.Header())) {
		fmt.Fprintf(tr, "< %s: %s\n", name, strings.Join(w.Header()[name], ", "))
	}
	text := w.Body.Bytes()
	if path == "/openapi.json" {
		text = outline(t, text)
	}
	var pretty bytes.Buffer
	switch {
	case tag != "":
		text = []byte("(a file of the dashboard)\n")
	case json.Indent(&pretty, text, "", "  ") == nil:
		text = append(bytes.TrimSpace(pretty.Bytes()), '\n')
	case w.Header().Get("Content-Type") == "text/event-stream":
		text = prettyFrames(text)
	}
	tr.Write(text)
	tr.WriteString("\n")
	return r.Pattern, w.Body.Bytes()
}

// prettyFrames indents the data of Server-Sent Events.
func prettyFrames(text []byte) []byte {
	var out bytes.Buffer
	for line := range bytes.Lines(text) {
		if data, ok := bytes.CutPrefix(line, []byte("data: ")); ok {
			out.WriteString("data: ")
			json.Indent(&out, bytes.TrimSpace(data), "", "  ") //nolint:errcheck // then it is empty, which differs
			line = []byte("\n")
		}
		out.Write(line)
	}
	return out.Bytes()
}

// outline is what clients rely on of the OpenAPI document: its operations. What
// bodies look like is in the golden shapes.
func outline(t *testing.T, text []byte) []byte {
	t.Helper()
	var doc document
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	lines := []string{}
	for path, ops := range doc.Paths {
		for method, op := range ops {
			var parameters []string
			for _, p := range op.Parameters {
				parameters = append(parameters, fmt.Sprintf("%v:%v", p["in"], p["name"]))
			}
			slices.Sort(parameters)
			lines = append(lines, fmt.Sprintf("%s %s: %s, %s, %v, answers %v", strings.ToUpper(method), path, op.ID, op.Role, parameters, slices.Sorted(maps.Keys(op.Responses))))
		}
	}
	slices.Sort(lines)
	out, err := json.Marshal(map[string]any{"openapi": doc.OpenAPI, "operations": lines})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// random are ids that differ from run to run: not those of the fixed world.
var random = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\b[0-9a-f]{32}\b|"pid": [0-9]+`)

// steady names random ids by the order in which they appear.
func steady(text string) string {
	names := map[string]string{}
	return random.ReplaceAllStringFunc(text, func(id string) string {
		switch {
		case strings.HasPrefix(id, "00000000-"):
			return id
		case strings.HasPrefix(id, `"pid"`):
			return `"pid": 1`
		case names[id] == "":
			names[id] = fmt.Sprintf("RANDOM-%d", len(names)+1)
		}
		return names[id]
	})
}

// TestGoldenAnswers: what each route answers about a world of fixed content is as
// it was recorded. Answers change by additions only; whoever rewrites them looks at
// each difference.
func TestGoldenAnswers(t *testing.T) {
	local := time.Local
	time.Local = time.UTC // sentences tell times of the host's zone
	defer func() { time.Local = local }()
	synctest.Test(t, func(t *testing.T) {
		w := newFixed(t)
		defer w.close()
		h := w.server.Handler()
		operations := map[string]string{} // by pattern
		var doc document
		if err := json.Unmarshal(w.server.Document(), &doc); err != nil {
			t.Fatal(err)
		}
		for path, ops := range doc.Paths {
			for method, op := range ops {
				operations[strings.ToUpper(method)+" "+path] = op.ID
			}
		}
		files, run := map[string]*transcript{}, ""
		for _, x := range w.exchanges() {
			tr := &transcript{}
			x.request = strings.ReplaceAll(x.request, "RUN", run)
			pattern, answer := tr.ask(t, h, x)
			if pattern == "POST /v1/runs" {
				var opened struct{ Batch string }
				if err := json.Unmarshal(answer, &opened); err != nil {
					t.Fatal(err)
				}
				run = opened.Batch
			}
			method, path, _ := strings.Cut(pattern, " ")
			if other, ok := written[path]; ok {
				path = other
			}
			id := operations[method+" "+path]
			if id == "" {
				t.Fatalf("%s: no operation has the pattern %q", x.request, pattern)
			}
			if files[id] == nil {
				files[id] = &transcript{}
			}
			files[id].WriteString(tr.String())
		}
		for pattern, id := range operations {
			if files[id] == nil {
				t.Errorf("%s has no golden answer: add a request to exchanges", pattern)
				continue
			}
			golden(t, "answers/"+id+".txt", steady(strings.ReplaceAll(files[id].String(), w.dir, "DIR")))
		}
	})
}

// TestGoldenShapes: the JSON of each body, with all fields set and with none, is as
// it was recorded: names, order, what is left out, how times and numbers are
// written. What is recorded changes by additions only.
func TestGoldenShapes(t *testing.T) {
	types := open(t, 0).server.BodyTypes()
	types["problem"] = types["list-jobs default"]
	maps.DeleteFunc(types, func(name string, _ reflect.Type) bool {
		return strings.HasSuffix(name, " default") || strings.HasSuffix(name, " 4XX")
	})
	types["stream-updates event"] = reflect.TypeFor[api.Update]()
	types["stream-job event"] = reflect.TypeFor[api.Event]()
	types["stream-job job"] = reflect.TypeFor[api.Job]()
	if len(types) < 50 {
		t.Errorf("there are only %d bodies", len(types))
	}
	var text strings.Builder
	seen := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(types)) {
		none, all := reflect.New(types[name]), reflect.New(types[name])
		server.Fill(all.Elem(), func() int { return 0 })
		shape := ""
		for _, v := range []any{none.Interface(), all.Interface()} {
			out, err := json.MarshalIndent(v, "", "  ")
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			shape += string(out) + "\n"
		}
		if same, ok := seen[shape]; ok {
			fmt.Fprintf(&text, "# %s: as %s\n\n", name, same)
			continue
		}
		seen[shape] = name
		fmt.Fprintf(&text, "# %s\n%s\n", name, shape)
	}
	golden(t, "shapes.txt", text.String())
}
