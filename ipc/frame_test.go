package ipc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
)

// decodeAll writes down everything that a decoder says about a stream, one line an answer.
func decodeAll(r io.Reader, max int) []string {
	d := NewDecoder(r, max)
	var said []string
	for {
		frame, err := d.Next()
		var oversize *OversizeError
		var garbage *GarbageError
		var torn *TornError
		switch {
		case err == nil:
			said = append(said, string(frame))
		case errors.As(err, &oversize):
			said = append(said, fmt.Sprintf("oversize %d", oversize.Size))
		case errors.As(err, &garbage):
			said = append(said, fmt.Sprintf("garbage %s %q", garbage.Why, garbage.Head))
		case errors.As(err, &torn):
			return append(said, fmt.Sprintf("torn %d %q", torn.Size, torn.Head))
		default:
			return append(said, err.Error())
		}
	}
}

func TestDecoder(t *testing.T) {
	const max = 16
	for _, tc := range []struct {
		name, stream string
		want         []string
	}{
		{"nothing", "", []string{"EOF"}},
		{"one", "{}\n", []string{"{}", "EOF"}},
		{"two", "{\"a\":1}\n{\"b\":2}\n", []string{`{"a":1}`, `{"b":2}`, "EOF"}},
		{"carriage return", "{}\r\n{}\r\n", []string{"{}", "{}", "EOF"}},
		{"blank lines", "\n\r\n  \t\n{}\n\n", []string{"{}", "EOF"}},
		{"spaces around", " {} \n", []string{" {} ", "EOF"}},
		{"at the limit", `{"a":"12345678"}` + "\n", []string{`{"a":"12345678"}`, "EOF"}},
		{"at the limit with carriage return", `{"a":"12345678"}` + "\r\n", []string{`{"a":"12345678"}`, "EOF"}},
		{"one over", `{"a":"123456789"}` + "\n{}\n", []string{"oversize 17", "{}", "EOF"}},
		{"one over with carriage return", `{"a":"123456789"}` + "\r\n{}\n", []string{"oversize 18", "{}", "EOF"}},
		{"far over", strings.Repeat("x", 200_000) + "\n{}\n", []string{"oversize 200000", "{}", "EOF"}},
		{"blank but over", strings.Repeat(" ", 40) + "\n{}\n", []string{"oversize 40", "{}", "EOF"}},
		{"torn", "{}\n{\"a\":", []string{"{}", `torn 5 "{\"a\":"`}},
		{"torn though whole", "{}", []string{`torn 2 "{}"`}},
		{"torn over the limit", strings.Repeat("x", 300), []string{`torn 300 "` + strings.Repeat("x", max+2) + `"`}},
		{"not JSON", "panic: oops\n{}\n", []string{`garbage not JSON "panic: oops"`, "{}", "EOF"}},
		{"two objects on a line", "{} {}\n", []string{`garbage not JSON "{} {}"`, "EOF"}},
		{"NUL", "{}\x00\n\x00\n{}\n", []string{`garbage not JSON "{}\x00"`, `garbage not JSON "\x00"`, "{}", "EOF"}},
		{"invalid UTF-8", "{\"a\":\"\xff\"}\n{}\n", []string{`garbage not UTF-8 "{\"a\":\"\xff\"}"`, "{}", "EOF"}},
		{"byte order mark", "\ufeff{}\n", []string{`garbage not JSON "\ufeff{}"`, "EOF"}},
		{"batch", "[{},{}]\n", []string{`garbage JSON, but not an object "[{},{}]"`, "EOF"}},
		{"number", "42\n", []string{`garbage JSON, but not an object "42"`, "EOF"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := decodeAll(strings.NewReader(tc.stream), max); !reflect.DeepEqual(got, tc.want) {
				t.Errorf("at once\n got %q\nwant %q", got, tc.want)
			}
			if got := decodeAll(iotest.OneByteReader(strings.NewReader(tc.stream)), max); !reflect.DeepEqual(got, tc.want) {
				t.Errorf("byte by byte\n got %q\nwant %q", got, tc.want)
			}
			if got := decodeAll(iotest.DataErrReader(strings.NewReader(tc.stream)), max); !reflect.DeepEqual(got, tc.want) {
				t.Errorf("with the end in the last read\n got %q\nwant %q", got, tc.want)
			}
		})
	}
}

func TestDecoderKeepsOnly200BytesOfGarbage(t *testing.T) {
	d := NewDecoder(strings.NewReader(strings.Repeat("x", 1000)+"\n"), MaxFrame)
	_, err := d.Next()
	var garbage *GarbageError
	if !errors.As(err, &garbage) || len(garbage.Head) != 200 || garbage.Size != 1000 {
		t.Fatalf("got %v", err)
	}
}

func TestDecoderEndsForGood(t *testing.T) {
	broken := errors.New("cable pulled")
	for _, tc := range []struct {
		name string
		r    io.Reader
		want error
	}{
		{"end", strings.NewReader("{}\n"), io.EOF},
		{"torn", strings.NewReader("{}\n{"), io.ErrUnexpectedEOF},
		{"broken", io.MultiReader(strings.NewReader("{}\n{"), iotest.ErrReader(broken)), broken},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := NewDecoder(tc.r, 0)
			if frame, err := d.Next(); err != nil || string(frame) != "{}" {
				t.Fatalf("first frame: %q, %v", frame, err)
			}
			for range 3 {
				if _, err := d.Next(); !errors.Is(err, tc.want) {
					t.Fatalf("got %v, want %v", err, tc.want)
				}
			}
		})
	}
}

// endless is a line that never ends, up to a size.
type endless struct{ left int }

func (e *endless) Read(p []byte) (int, error) {
	if e.left <= 0 {
		return 0, io.EOF
	}
	n := min(len(p), e.left)
	e.left -= n
	for i := range p[:n] {
		p[i] = 'x'
	}
	return n, nil
}

func TestDecoderMemoryIsBounded(t *testing.T) {
	d := NewDecoder(&endless{left: 256 << 20}, 1<<20)
	_, err := d.Next()
	var torn *TornError
	if !errors.As(err, &torn) || torn.Size != 256<<20 {
		t.Fatalf("got %v", err)
	}
	if got := cap(d.buf); got > 2<<20 {
		t.Errorf("buffer of %d bytes after a line of %d", got, torn.Size)
	}
}

func TestEncoder(t *testing.T) {
	var writes writeLog
	e := NewEncoder(&writes, 16)
	for _, bad := range []string{"", "{\n}", "{\r}", "{\"\xff\":1}"} {
		if err := e.Encode([]byte(bad)); err == nil {
			t.Errorf("%q was written", bad)
		}
	}
	var oversize *OversizeError
	if err := e.Encode([]byte(strings.Repeat("x", 17))); !errors.As(err, &oversize) || oversize.Size != 17 || !strings.Contains(err.Error(), "17") {
		t.Errorf("17 bytes: %v", err)
	}
	for _, good := range []string{"{}", `{"a":"12345678"}`} {
		if err := e.Encode([]byte(good)); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	if want := (writeLog{"{}\n", "{\"a\":\"12345678\"}\n"}); !reflect.DeepEqual(writes, want) {
		t.Errorf("writes %q, want %q", writes, want)
	}
	r, w := io.Pipe()
	r.Close()
	if err := NewEncoder(w, 0).Encode([]byte("{}")); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("closed pipe: %v", err)
	}
}

type writeLog []string

func (l *writeLog) Write(p []byte) (int, error) {
	*l = append(*l, string(p))
	return len(p), nil
}

// naiveDecode says what a Decoder must say, from the whole stream in memory.
func naiveDecode(stream []byte, max int) []string {
	lines := bytes.Split(stream, []byte("\n"))
	last := lines[len(lines)-1]
	var said []string
	for _, raw := range lines[:len(lines)-1] {
		line := bytes.TrimSuffix(raw, []byte("\r"))
		if len(line) > max {
			said = append(said, fmt.Sprintf("oversize %d", len(raw)))
			continue
		}
		if len(bytes.Trim(line, " \t\r")) == 0 {
			continue
		}
		var garbage *GarbageError
		if errors.As(checkObject(line), &garbage) {
			said = append(said, fmt.Sprintf("garbage %s %q", garbage.Why, garbage.Head))
			continue
		}
		said = append(said, string(line))
	}
	if len(last) > 0 {
		return append(said, fmt.Sprintf("torn %d %q", len(last), last[:min(len(last), 200, max+2)]))
	}
	return append(said, "EOF")
}
