package ipc

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"
)

// benchPeers joins two peers by real pipes, as scheduler and core are.
func benchPeers(b *testing.B, side Config) (*Peer, *Peer) {
	ra, wb, err := os.Pipe()
	if err != nil {
		b.Fatal(err)
	}
	rb, wa, err := os.Pipe()
	if err != nil {
		b.Fatal(err)
	}
	x, y := NewPeer(ra, wa, Config{}), NewPeer(rb, wb, side)
	endX, endY := runPeer(context.Background(), x), runPeer(context.Background(), y)
	b.Cleanup(func() {
		x.Stop(nil)
		y.Stop(nil)
		<-endX
		<-endY
	})
	return x, y
}

type benchParams struct {
	Job  string    `json:"job"`
	Seq  int       `json:"seq"`
	Time time.Time `json:"time"`
	Text string    `json:"text"`
}

func BenchmarkCall(b *testing.B) {
	x, _ := benchPeers(b, Config{Handler: handler{call: echo}})
	params := benchParams{Job: "0190a5d0-7f2e-7bcd-8123-0123456789ab", Text: strings.Repeat("x", 200)}
	b.ReportAllocs()
	for b.Loop() {
		var got benchParams
		if err := x.Call(b.Context(), "echo", params, &got); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCallParallel(b *testing.B) {
	x, _ := benchPeers(b, Config{Handler: handler{call: echo}})
	params := benchParams{Job: "0190a5d0-7f2e-7bcd-8123-0123456789ab", Text: strings.Repeat("x", 200)}
	b.ReportAllocs()
	b.SetParallelism(16)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := x.Call(context.Background(), "echo", params, nil); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// BenchmarkNotify counts a notification when the other side has handled it.
func BenchmarkNotify(b *testing.B) {
	handled := make(chan struct{}, 1024)
	x, _ := benchPeers(b, Config{Handler: handler{note: func(context.Context, string, json.RawMessage) { handled <- struct{}{} }}})
	params := benchParams{Job: "0190a5d0-7f2e-7bcd-8123-0123456789ab", Text: strings.Repeat("x", 1000)}
	b.ReportAllocs()
	b.SetBytes(1100)
	n := b.N
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range n {
			<-handled
		}
	}()
	for range n {
		if err := x.Notify(b.Context(), "note", params); err != nil {
			b.Fatal(err)
		}
	}
	<-done
}
