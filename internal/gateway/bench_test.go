package gateway

import (
	"io"
	"strings"
	"testing"
)

// agentBody is of the size of an agent's usual request: 100 kB, most of it tools and files.
var agentBody = `{"model":"m","stream":true,"input":[{"role":"user","content":[{"type":"input_text","text":"` +
	strings.Repeat(`func main() {\n\tfmt.Println(\"hello\")\n}\n`, 2400) + `"}]}],"tools":[{"type":"function","name":"f","parameters":{}}]}`

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
