package acp_test

import (
	"errors"
	"reflect"
	"slices"
	"testing"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/acp"
	"github.com/agentsched/agentsched/worker/workertest"
)

// conformance has what real agents have printed; see -record.
func conformance() workertest.Config {
	return workertest.Config{
		Adapter: acp.Adapter{}, Kind: "mine",
		Settings:    job.WorkerSettings{Adapter: "acp", Command: []string{"/bin/sh"}},
		Transcripts: "testdata",
		Want: map[string]workertest.Want{
			"claude-command":     {Answer: "All done.", Session: "69306f84-c569-4c95-a2a3-debc3cd62f17", Tokens: 300},
			"claude-denied":      {Answer: "I may not.", Session: "29c2a9ee-68ef-4b59-ac93-4281bc825817", Tokens: 300},
			"gemini-auth":        {Class: job.Auth},
			"opencode-command":   {Answer: "All done.", Session: "ses_dd9d81261ffeycv4ooy6OL6xvC", Tokens: 150},
			"opencode-denied":    {Session: "ses_dd9d78b41ffeSqZtp6lZrx8QY9", Tokens: 150},
			"qwen-command":       {Answer: "All done.", Session: "6accdac0-82f8-4914-976d-07d1cf6a3f9c", Tokens: 300},
			"qwen-denied":        {Session: "c59b0083-9adf-4810-be7c-c9a93490a516", Tokens: 150},
			"qwen-write-edit":    {Answer: "All done.", Session: "f0ebc732-82d4-4965-b317-58245616dc11", Tokens: 240},
			"qwen-write-gitedit": {Answer: "All done.", Session: "ff242c9f-9896-43dc-a8b3-6855297765e2", Tokens: 240},
			"qwen-write-read":    {Answer: "All done.", Session: "8f208af9-8cde-46a9-8153-6f927f73721a", Tokens: 240},
		},
	}
}

func TestConformance(t *testing.T) { workertest.Run(t, conformance()) }

func FuzzSession(f *testing.F) { workertest.Fuzz(f, conformance()) }

// TestEnvironment checks what an agent is told of its models.
func TestEnvironment(t *testing.T) {
	task := &worker.Task{
		Dir: t.TempDir(), Environ: []string{"PATH=/bin"}, Model: "m",
		Lookup:   func(name string) (string, bool) { return "sesame", name == "MY_KEY" },
		Settings: job.WorkerSettings{Adapter: "acp", Command: []string{"/bin/sh", "--acp"}, KeyEnv: "MY_KEY"},
	}
	for _, c := range []struct {
		baseURL string
		models  *worker.ModelEndpoint
		want    []string
	}{
		{"", nil, []string{"PATH=/bin", "MY_KEY=sesame"}},
		{"http://gate/v1", nil, []string{"PATH=/bin", "MY_KEY=sesame", "OPENAI_BASE_URL=http://gate/v1", "OPENAI_API_KEY=sesame", "OPENAI_MODEL=m"}},
		{"http://gate/v1", &worker.ModelEndpoint{URL: "http://127.0.0.1:1", Key: "the-runs", API: worker.OpenAIChat},
			[]string{"PATH=/bin", "MY_KEY=the-runs", "OPENAI_BASE_URL=http://127.0.0.1:1/v1", "OPENAI_API_KEY=the-runs", "OPENAI_MODEL=m"}},
	} {
		task.Settings.BaseURL, task.Models = c.baseURL, c.models
		s, err := acp.Adapter{}.Start(task)
		if err != nil {
			t.Fatal(err)
		}
		cmd := s.Command()
		if !slices.Equal(cmd.Env, c.want) || !slices.Equal(cmd.Args, []string{"--acp"}) || cmd.Dir != task.Dir || !cmd.KeepStdin {
			t.Errorf("command %+v, want the environment %q", cmd, c.want)
		}
	}
}

func TestUpstream(t *testing.T) {
	u, err := acp.Adapter{}.Upstream(job.WorkerSettings{BaseURL: "http://gate/v1", KeyEnv: "K", Model: "m"}, nil)
	if want := (worker.Upstream{API: worker.OpenAIChat, BaseURL: "http://gate/v1", KeyEnv: "K", Model: "m"}); err != nil || !reflect.DeepEqual(u, want) {
		t.Errorf("upstream %+v, %v", u, err)
	}
	var unserved *worker.UnservedError
	if _, err := (acp.Adapter{}).Upstream(job.WorkerSettings{}, nil); !errors.As(err, &unserved) {
		t.Errorf("without an endpoint: %v", err)
	}
	var failed *worker.Failure
	if _, err := (acp.Adapter{}).Locate(job.WorkerSettings{}); !errors.As(err, &failed) || failed.Class != job.Config {
		t.Errorf("without a command: %v", err)
	}
}
