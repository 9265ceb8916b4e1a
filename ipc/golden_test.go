package ipc

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var update = flag.Bool("update", false, "write what the peer says into the golden files")

// The files in testdata/ipc are conversations with a real peer, one line a frame:
//
//	> {…}         what the peer is sent, as it is; a "\n" is added
//	>q "…"        the same, written as a Go string, and nothing is added
//	>big N        a line of N bytes
//	>wait 1s      let time pass
//	>eof          end the peer's input
//	< {…}         what the peer says to that, in its order
//	= …           what Run returned
//	# …           a comment
//
// The methods that the peer knows are those of golden.HandleCall: relay calls `asked` back and answers with its answer,
// seen lists the notifications that came.
func TestGoldenWire(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "testdata", "ipc", "*.jsonl"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".jsonl"), func(t *testing.T) {
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var got string
			synctest.Test(t, func(t *testing.T) { got = play(t, string(want)) })
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != string(want) {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// play says a file's lines to a peer and returns the file as it should be.
func play(t *testing.T, file string) string {
	g := &golden{}
	w := newWire(t.Context(), Config{Handler: g}, true)
	g.peer = w.Peer
	var said strings.Builder
	for _, line := range strings.Split(strings.TrimSuffix(file, "\n"), "\n") {
		verb, rest, _ := strings.Cut(line, " ")
		if verb == "<" || verb == "=" {
			continue
		}
		fmt.Fprintln(&said, line)
		switch verb {
		case ">":
			w.say(rest + "\n")
		case ">q":
			text, err := strconv.Unquote(rest)
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			w.say(text)
		case ">big":
			size, err := strconv.Atoi(rest)
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			w.say(`{"a":"` + strings.Repeat("x", size-len(`{"a":""}`)) + `"}` + "\n")
		case ">wait":
			d, err := time.ParseDuration(rest)
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			<-time.After(d)
		case ">eof":
			w.to.Close()
		case "#", "":
			continue
		default:
			t.Fatalf("verb %q is not known", verb)
		}
		for _, answer := range w.heard() {
			fmt.Fprintln(&said, "<", answer)
		}
	}
	w.to.Close()
	fmt.Fprintln(&said, "=", <-w.end)
	for _, answer := range w.heard() {
		t.Errorf("said after all: %s", answer)
	}
	return said.String()
}

// golden is the handler of the peer in the golden files.
type golden struct {
	peer *Peer
	seen []string // methods of notifications
}

func (g *golden) HandleCall(ctx context.Context, method string, params json.RawMessage) (any, error) {
	switch method {
	case "echo":
		return params, nil
	case "add":
		var n struct {
			A, B int
		}
		if err := DecodeParams(params, &n); err != nil {
			return nil, err
		}
		return n.A + n.B, nil
	case "fail":
		return nil, &Error{Code: CodePermitRejected, Message: "rate limit", Data: json.RawMessage(`{"retry_after_ms": 1500}`)}
	case "break":
		return nil, errors.New("disk full")
	case "panic":
		panic("asked for")
	case "wait":
		<-time.After(time.Second)
		return "waited", nil
	case "relay":
		var got json.RawMessage
		err := g.peer.Call(ctx, "asked", params, &got)
		return got, err
	case "seen":
		return g.seen, nil
	case "expect_eof":
		g.peer.ExpectEOF()
		return nil, nil
	}
	return nil, MethodNotFound(method)
}

func (g *golden) HandleNotify(_ context.Context, method string, _ json.RawMessage) {
	if method == "panic" {
		panic("asked for")
	}
	g.seen = append(g.seen, method)
}
