package ipc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/rs/zerolog"
)

// FuzzDecoder compares the decoder with a naive one that has the whole stream in memory, and checks that whatever it
// returns as a frame is one, and survives being written again.
func FuzzDecoder(f *testing.F) {
	f.Add([]byte("{}\n{\"jsonrpc\":\"2.0\"}\r\n\n[]\nnull\n{"), 16)
	f.Add([]byte(strings.Repeat("x", 70_000)+"\n{}\n"), 1024)
	f.Add([]byte("{\"a\":\"\xff\"}\n\x00\n{}\n"), 1<<20)
	f.Fuzz(func(t *testing.T, stream []byte, max int) {
		if max < 1 || max > MaxFrame {
			max = 64
		}
		want := naiveDecode(stream, max)
		if got := decodeAll(bytes.NewReader(stream), max); !reflect.DeepEqual(got, want) {
			t.Fatalf("at once\n got %q\nwant %q", got, want)
		}
		if got := decodeAll(iotest.HalfReader(bytes.NewReader(stream)), max); !reflect.DeepEqual(got, want) {
			t.Fatalf("in pieces\n got %q\nwant %q", got, want)
		}

		d := NewDecoder(bytes.NewReader(stream), max)
		var again bytes.Buffer
		enc := NewEncoder(&again, max)
		var frames [][]byte
		for {
			frame, err := d.Next()
			if err == nil {
				if len(frame) > max || !json.Valid(frame) || frame[bytes.IndexAny(frame, "{")] != '{' {
					t.Fatalf("not a frame: %q", frame)
				}
				if bytes.ContainsRune(frame, '\r') {
					continue // white space to JSON, but never written by us
				}
				frames = append(frames, bytes.Clone(frame))
				if err := enc.Encode(frame); err != nil {
					t.Fatalf("write again %q: %v", frame, err)
				}
				continue
			}
			var oversize *OversizeError
			var garbage *GarbageError
			if !errors.As(err, &oversize) && !errors.As(err, &garbage) {
				break
			}
		}
		if cap(d.buf) > 2*max+1024 {
			t.Fatalf("buffer of %d bytes for frames of %d", cap(d.buf), max)
		}
		d = NewDecoder(&again, max)
		for _, frame := range frames {
			if got, err := d.Next(); err != nil || !bytes.Equal(got, frame) {
				t.Fatalf("read again %q: got %q, %v", frame, got, err)
			}
		}
		if _, err := d.Next(); err != io.EOF {
			t.Fatalf("read again: %v at the end", err)
		}
	})
}

// FuzzPeer feeds a peer a stream: it must end with a cause that fits the stream's end, and answer in valid frames only.
func FuzzPeer(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"method":"echo","params":{"a":1}}` + "\n" + `{"jsonrpc":"2.0","id":1,"result":{}}` + "\n"))
	f.Add([]byte(`{"jsonrpc":"2.0","id":"x","method":"ask"}` + "\n" + `{"jsonrpc":"2.0","method":"note","params":[1]}` + "\n"))
	f.Add([]byte(strings.Repeat("garbage\n", 12)))
	f.Add([]byte(`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"x"}}` + "\n" + `[]` + "\n{"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		var p *Peer
		h := handler{call: func(ctx context.Context, method string, params json.RawMessage) (any, error) {
			switch method {
			case "ask":
				var got any
				err := p.Call(ctx, "question", params, &got)
				return got, err
			case "panic":
				panic("asked for")
			}
			return params, nil
		}}
		var out bytes.Buffer
		p = NewPeer(io.NopCloser(bytes.NewReader(stream)), nopWriteCloser{&out}, Config{
			Handler: h, Log: zerolog.Nop(), HangLimit: time.Minute,
		})
		err := p.Run(context.Background())
		var torn *TornError
		switch {
		case errors.Is(err, ErrGarbage):
		case len(stream) == 0 || stream[len(stream)-1] == '\n':
			if !errors.Is(err, ErrEOF) {
				t.Fatalf("ended with %v", err)
			}
		case !errors.As(err, &torn):
			t.Fatalf("ended with %v", err)
		}
		for _, said := range decodeAll(&out, MaxFrame) {
			if said != "EOF" && !strings.HasPrefix(said, `{"jsonrpc":"2.0",`) {
				t.Fatalf("peer wrote %q", said)
			}
		}
	})
}

type nopWriteCloser struct{ io.Writer }

func (nopWriteCloser) Close() error { return nil }
