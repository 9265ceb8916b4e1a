package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/agentsched/agentsched/internal/gateway"
	"github.com/agentsched/agentsched/internal/gateway/credential"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/permit"
)

const (
	firstBytes  = 200 // of a round, one after the other
	streams     = 64  // at once
	events      = 500 // of each
	firstWithin = 1.0 // milliseconds that the gateway may add
)

// agentBody is of the size of an agent's usual request: 100 kB, most of it tools and files.
var agentBody = `{"model":"m","stream":true,"max_output_tokens":1000,"input":[{"role":"user","content":[{"type":"input_text","text":"` +
	strings.Repeat(`func main() {\n\tfmt.Println(\"hello\")\n}\n`, 2400) + `"}]}],"tools":[{"type":"function","name":"f","parameters":{}}]}`

// gatewayCase is what a run pays for asking its models through the core: until the first byte of an answer, and for each
// event of its stream.
func gatewayCase(ctx context.Context, b *bench) ([]row, error) {
	d, err := newDoor()
	if err != nil {
		return nil, err
	}
	defer d.close()
	first := func(url string) side {
		return func(ctx context.Context) (float64, error) {
			return median(firstBytes, func() (time.Duration, error) { return d.ask(ctx, url, 1) })
		}
	}
	// One after the other, so that the first bytes of a round have the same neighbours.
	s, err := turns(ctx, b.rounds, first(d.endpoint.URL), first(d.provider.URL))
	if err != nil {
		return nil, err
	}
	many := func(url string) side {
		return func(ctx context.Context) (float64, error) { return d.together(ctx, url) }
	}
	m, err := turns(ctx, b.rounds, many(d.endpoint.URL), many(d.provider.URL))
	if err != nil {
		return nil, err
	}
	adds := (s[0].median() - s[1].median()) * 1e3
	most := bound{most: firstWithin, unit: " ms"}
	return []row{
		{"gateway, a request of 100 kB to its first byte, p50", showTime(s[0]), "provider " + showTime(s[1]), fmt.Sprintf("adds %.2f ms", adds), most.String(), most.reached(adds)},
		rates(fmt.Sprintf("  events of %d streams of %d at once", streams, events), m[0], "provider", m[1], bound{}),
	}, nil
}

// door is a provider that streams, and the gateway's endpoint of a run before it.
type door struct {
	provider, endpoint *httptest.Server
	gateway            *gateway.Gateway
	client             *http.Client
	key                string
}

func newDoor() (*door, error) {
	piece := []byte("event: response.output_text.delta\ndata: " + `{"type":"response.output_text.delta","item_id":"msg_1","output_index":0,"content_index":0,"delta":"some words of text","obfuscation":"xyz"}` + "\n\n")
	last := []byte("event: response.completed\ndata: " + `{"type":"response.completed","response":{"usage":{"input_tokens":120,"output_tokens":30}}}` + "\n\n")
	d := &door{client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: streams}}}
	d.provider = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		flush := http.NewResponseController(w)
		n := 1
		_, _ = fmt.Sscan(r.Header.Get("X-Stainless-Retry-Count"), &n) // a header that the gateway passes on
		for range n {
			_, _ = w.Write(piece)
			_ = flush.Flush()
		}
		_, _ = w.Write(last)
	}))
	gate := permit.NewGate(permit.Limits{MaxConcurrent: 1, TTL: time.Hour})
	p, err := gate.Request(context.Background(), permit.Request{Job: "job", Attempt: 1, Limits: job.Limits{MaxTokens: 1 << 50}})
	if err == nil {
		p, err = gate.Use(p.ID, p.Job, p.Attempt)
	}
	if err == nil {
		d.gateway, err = gateway.New(gateway.Config{Providers: []gateway.Provider{{
			Name: "p", APIs: []gateway.API{gateway.Responses}, BaseURL: d.provider.URL + "/v1", Keys: []credential.Key{{Value: "a-key-of-the-provider"}},
		}}})
	}
	if err != nil {
		d.provider.Close()
		return nil, err
	}
	s, err := d.gateway.Open(gateway.RunConfig{Permit: p})
	if err != nil {
		d.gateway.Close()
		d.provider.Close()
		return nil, err
	}
	d.key, d.endpoint = s.Key(), httptest.NewServer(s)
	return d, nil
}

func (d *door) close() {
	d.client.CloseIdleConnections()
	d.gateway.Close()
	d.endpoint.Close()
	d.provider.Close()
}

// ask makes a request that is answered with n events, and returns the time to its first byte.
func (d *door) ask(ctx context.Context, url string, n int) (time.Duration, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/responses", strings.NewReader(agentBody))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Authorization", "Bearer "+d.key)
	req.Header.Set("X-Stainless-Retry-Count", fmt.Sprint(n))
	began := time.Now()
	res, err := d.client.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	var one [1]byte
	_, err = io.ReadFull(res.Body, one[:])
	took := time.Since(began)
	if res.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("the answer's status is %s", res.Status)
	}
	read, rest := io.Copy(io.Discard, res.Body)
	if err = errors.Join(err, rest); err == nil && read < int64(n)*100 {
		err = fmt.Errorf("%d events in %d bytes", n, read)
	}
	return took, err
}

// together returns the rate of events when as many streams are open at once.
func (d *door) together(ctx context.Context, url string) (float64, error) {
	began := time.Now()
	err := together(streams, func() error {
		_, err := d.ask(ctx, url, events)
		return err
	})
	return rate(streams*events, time.Since(began)), err
}
