package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/job"
)

// provider plays one of models, by the Messages API.
type provider struct {
	mu    sync.Mutex
	spent int // tokens of all answers that it has begun
}

const (
	askTokens    = 10
	answerTokens = 1000
	maxTokens    = 10_000 // of the jobs that try to spend more
)

// reset returns what was spent and begins anew.
func (p *provider) reset() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	spent := p.spent
	p.spent = 0
	return spent
}

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	has := func(text string) bool { return bytes.Contains(body, []byte(text)) }
	if has(`"model":"echo"`) {
		w.Header().Set("X-Echo", r.Header.Get("X-Api-Key"))
		http.Error(w, fmt.Sprintf(`{"type":"error","error":{"type":"invalid_request_error","message":"not with the key %s"}}`, r.Header.Get("X-Api-Key")), http.StatusBadRequest)
		return
	}
	var asked struct {
		MaxTokens int `json:"max_tokens"`
	}
	if err := json.Unmarshal(body, &asked); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	tokens := min(asked.MaxTokens, answerTokens)
	if has(`"stream":true`) {
		tokens = min(asked.MaxTokens, answerTokens/2)
	}
	p.mu.Lock()
	p.spent += askTokens + tokens
	p.mu.Unlock()
	if has(`"stream":true`) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"type\":\"message\",\"role\":\"assistant\",\"model\":\"m\",\"content\":[],\"usage\":{\"input_tokens\":%d,\"output_tokens\":1}}}\n\n", askTokens)
		fmt.Fprintf(w, "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"%send\"}}\n\n", strings.Repeat("word", tokens-1))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done() // the rest comes when nobody listens any more
		return
	}
	text := "Hello."
	if has("web_search") || has(`"url":`) || has("file_id") {
		text = "It has searched."
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":%q}],"stop_reason":"end_turn","usage":{"input_tokens":%d,"output_tokens":%d}}`,
		text, askTokens, tokens)
}

// agentScript is a worker's program that only looks like one: it does acts.
const agentScript = `
case "$*" in *--version*) echo "2.1.197 (Claude Code)"; exit;; esac
name=$1 public=${0%/*}
$public/hostile $public/$name.world $(cat $public/$name.acts) > $public/results/$name
echo '{"type":"result","subtype":"success","is_error":false,"result":"done"}'
`

// modelJobs are what the acts of models are done by, for each level a kind of worker: "models" does most acts, the others one
// each, which tries to spend more than its limit.
var modelJobs = []string{"models", "model-parallel", "model-abort"}

func modelJob(level, name string) string { return level + "-" + name }

// useModels sets the workers up.
func (w *world) useModels() {
	w.b.write(w.Public+"/agent.sh", agentScript)
	w.b.env = append(w.b.env, "MODEL_KEY=sk-"+w.Canary)
	w.b.config["prices"] = obj{"m": obj{"input": 1, "output": 4}, "echo": obj{"input": 1, "output": 4}}
	workers := w.b.config["workers"].(obj)
	for _, level := range []string{"none", "standard", "strict"} {
		for _, name := range modelJobs {
			kind := modelJob(level, name)
			workers[kind] = obj{"adapter": "claude", "command": []string{"/bin/sh", w.Public + "/agent.sh", kind}, "base_url": "http://" + w.Elsewhere, "key_env": "MODEL_KEY"}
		}
	}
}

// tryModels does the acts of models as runs at a level.
func (w *world) tryModels(level string, rows []hostileRow) map[string]hostileResult {
	t := w.b.t
	t.Helper()
	w.prepare()
	var most []string
	for _, row := range rows {
		for _, act := range row.names() {
			if act != "model-parallel" && act != "model-abort" {
				most = append(most, act)
			}
		}
	}
	got := make(map[string]hostileResult)
	for _, name := range modelJobs {
		kind, acts := modelJob(level, name), []string{name}
		if name == "models" {
			acts = most
		}
		w.b.write(w.Public+"/"+kind+".world", asJSON(t, w.surroundings))
		w.b.write(w.Public+"/"+kind+".acts", strings.Join(acts, " "))
		w.models.reset()
		j := obj{
			"id": kind, "worker": kind, "workspace": w.b.workspace(), "instructions": "Do it.", "model": "m",
			"limits":  obj{"max_attempts": 1, "max_tokens": maxTokens},
			"sandbox": obj{"level": level, "read": []string{w.Public}, "write": []string{w.Public + "/results"}},
		}
		if name == "models" {
			j["limits"] = obj{"max_attempts": 1}
		}
		w.b.submit(w.b.jobsOf("tests", kind+".yaml", j))
		ended := w.run.await("the end of "+kind, func(u *api.Update) bool {
			return u.Kind == api.UpdateJob && u.Name == job.Name(kind) && u.Entry.Terminal()
		}).State
		if name == "models" {
			if ended != job.RunCompleted {
				w.b.fatalf("%s is %s: %+v", kind, ended, w.b.last(w.b.show(kind)))
			}
			data, err := os.ReadFile(filepath.Join(w.Public, "results", kind))
			if err != nil {
				t.Fatal(err)
			}
			w.take(got, data)
			continue
		}
		spent := w.models.reset()
		got[name] = hostileResult{Act: name, OK: spent > maxTokens, Errno: fmt.Sprintf("%d tokens spent", spent)}
		if level != "none" {
			if class := w.b.last(w.b.show(kind)).Class; class != job.Budget || spent == 0 {
				t.Errorf("%s: the run has spent %d tokens and ended with %s, want %s", kind, spent, class, job.Budget)
			}
		}
	}
	return got
}
