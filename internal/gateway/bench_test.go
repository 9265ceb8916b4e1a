package gateway

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agentsched/agentsched/internal/gateway/credential"
)

// streamer is a provider that sends n events, each at once.
func streamer(n int) http.HandlerFunc {
	piece := []byte(event(`{"type":"response.output_text.delta","item_id":"msg_1","output_index":0,"content_index":0,"delta":"some words of text","obfuscation":"xyz"}`))
	last := []byte(event(`{"type":"response.completed","response":{"usage":{"input_tokens":120,"output_tokens":30}}}`))
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", events)
		flush := http.NewResponseController(w)
		for range n {
			_, _ = w.Write(piece)
			_ = flush.Flush()
		}
		_, _ = w.Write(last)
	}
}

// agentBody is of the size of an agent's usual request: 100 kB, most of it tools and files.
var agentBody = `{"model":"m","stream":true,"input":[{"role":"user","content":[{"type":"input_text","text":"` +
	strings.Repeat(`func main() {\n\tfmt.Println(\"hello\")\n}\n`, 2400) + `"}]}],"tools":[{"type":"function","name":"f","parameters":{}}]}`

// benchRig is a provider and the endpoint of a run before it.
func benchRig(b *testing.B, handler http.HandlerFunc) (direct, through, key string) {
	provider := httptest.NewServer(handler)
	g, err := New(Config{Providers: []Provider{{Name: "p", APIs: []API{Responses}, BaseURL: provider.URL + "/v1", Keys: []credential.Key{{Value: realKey}}}}})
	if err != nil {
		b.Fatal(err)
	}
	s, err := g.Open(ampleRun(b))
	if err != nil {
		b.Fatal(err)
	}
	endpoint := httptest.NewServer(s)
	b.Cleanup(func() { g.Close(); endpoint.Close(); provider.Close() })
	return provider.URL, endpoint.URL, s.Key()
}

func open(b *testing.B, client *http.Client, url, key string) *http.Response {
	req, err := http.NewRequest("POST", url+"/v1/responses", strings.NewReader(agentBody))
	if err != nil {
		b.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	res, err := client.Do(req)
	if err != nil || res.StatusCode != 200 {
		b.Fatal(res, err)
	}
	return res
}

// BenchmarkFirstByte is a request of 100 kB up to the first byte of its answer, at the provider and through the gateway.
func BenchmarkFirstByte(b *testing.B) {
	direct, through, key := benchRig(b, streamer(1))
	for _, way := range []struct{ name, url string }{{"direct", direct}, {"gateway", through}} {
		b.Run(way.name, func(b *testing.B) {
			client := &http.Client{Transport: &http.Transport{}}
			defer client.CloseIdleConnections()
			var first [1]byte
			for b.Loop() {
				res := open(b, client, way.url, key)
				if _, err := io.ReadFull(res.Body, first[:]); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				_, _ = io.Copy(io.Discard, res.Body)
				res.Body.Close()
				b.StartTimer()
			}
		})
	}
}

// BenchmarkEvent is one event of a stream, metered and passed on; it must not allocate.
func BenchmarkEvent(b *testing.B) {
	b.ReportAllocs()
	m := newMeter(true, nil)
	c := &concealer{to: io.Discard, secret: []byte(realKey)}
	piece := []byte(event(`{"type":"response.output_text.delta","item_id":"msg_1","output_index":0,"content_index":0,"delta":"some words of text","obfuscation":"xyz"}`))
	b.SetBytes(int64(len(piece)))
	for b.Loop() {
		m.feed(piece)
		if _, err := c.Write(piece); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkStreams is 64 streams of 200 events at once: the time until all have ended, and that of each to its first byte.
func BenchmarkStreams(b *testing.B) {
	const streams = 64
	direct, through, key := benchRig(b, streamer(200))
	for _, way := range []struct{ name, url string }{{"direct", direct}, {"gateway", through}} {
		b.Run(way.name, func(b *testing.B) {
			client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: streams}}
			defer client.CloseIdleConnections()
			var mu sync.Mutex
			var waited time.Duration
			for b.Loop() {
				var all sync.WaitGroup
				for range streams {
					all.Go(func() {
						began := time.Now()
						res := open(b, client, way.url, key)
						var first [1]byte
						_, err := io.ReadFull(res.Body, first[:])
						mu.Lock()
						waited += time.Since(began)
						mu.Unlock()
						if err != nil {
							b.Error(err)
						}
						_, _ = io.Copy(io.Discard, res.Body)
						res.Body.Close()
					})
				}
				all.Wait()
			}
			b.ReportMetric(float64(waited.Microseconds())/float64(b.N*streams), "µs/first-byte")
		})
	}
}

// BenchmarkParse is what is done to a request of 100 kB before it is sent.
func BenchmarkParse(b *testing.B) {
	b.ReportAllocs()
	body := []byte(agentBody)
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		q, err := parse(endpointReply, body)
		if err != nil {
			b.Fatal(err)
		}
		if err := q.confine(); err != nil {
			b.Fatal(err)
		}
	}
}
