package relay

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// maxRequest is the most bytes of a request's line.
const maxRequest = 32 << 20

// request is a line of the input.
type request struct {
	ID     int64           `json:"id"`
	Method string          `json:"method"`
	Path   string          `json:"path"`
	Body   json.RawMessage `json:"body"`
}

// line is one of the output: an answer, or an event.
type line struct {
	ID     int64           `json:"id,omitempty"`
	Status *int            `json:"status,omitempty"` // 0: there is no answer
	Body   json.RawMessage `json:"body,omitempty"`
	Error  string          `json:"error,omitempty"` // why there is none
	Event  json.RawMessage `json:"event,omitempty"`
}

// write writes a line of the output.
func (r *relay) write(l line) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b) // compacts what is raw
	enc.SetEscapeHTML(false)
	if err := enc.Encode(l); err != nil {
		return err
	}
	r.writing.Lock()
	defer r.writing.Unlock()
	_, err := r.out.Write(b.Bytes())
	return err
}

// passRequests makes the requests of the input, until that ends.
func (r *relay) passRequests(ctx context.Context, s *server, in io.Reader) error {
	for lines := bufio.NewReader(in); ; {
		raw, size, err := readLine(lines, maxRequest)
		if err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("read the requests: %w", err)
		}
		var q request
		if size > maxRequest || json.Unmarshal(raw, &q) != nil {
			fmt.Fprintf(r.errors, "%s: a line of %d bytes is no request\n", Command, size)
			continue
		}
		a := line{ID: q.ID}
		status, body, err := s.ask(ctx, q.Method, q.Path, q.Body)
		if a.Status, a.Body = &status, body; err != nil {
			a.Error = err.Error()
		}
		if err := r.write(a); err != nil {
			return err
		}
	}
}

// passed are the beginnings of the kinds of events that are passed on, and silent those of them that are not: they say
// again what others say whole, once more or in pieces. Events that only say that the server is alive would let a run that
// stands still look busy.
var (
	passed = []string{"message.", "permission.", "question.", "session."}
	silent = map[string]bool{"message.part.delta": true, "session.updated": true, "session.diff": true}
)

// passEvents passes on the events of a stream, until that ends.
func (r *relay) passEvents(stream io.Reader) error {
	for lines := bufio.NewReaderSize(stream, 64<<10); ; {
		raw, size, err := readLine(lines, maxAnswer)
		if err != nil {
			return fmt.Errorf("the server's events broke off: %w", err)
		}
		data, ok := bytes.CutPrefix(raw, []byte("data:"))
		if !ok {
			continue // between two events
		}
		var e struct{ Type string }
		if size > maxAnswer || json.Unmarshal(data, &e) != nil {
			fmt.Fprintf(r.errors, "%s: a line of %d bytes is no event\n", Command, size)
			continue
		}
		if silent[e.Type] || !slices.ContainsFunc(passed, func(kind string) bool { return strings.HasPrefix(e.Type, kind) }) {
			continue
		}
		if err := r.write(line{Event: data}); err != nil {
			return err
		}
	}
}

// readLine returns the next line without its newline, at most most bytes of it, and its whole size. The slice holds until
// the next call.
func readLine(lines *bufio.Reader, most int) (line []byte, size int, err error) {
	for {
		part, err := lines.ReadSlice('\n')
		size += len(part)
		if err == nil && line == nil && size <= most { // whole in the buffer
			return part[:len(part)-1], size - 1, nil
		}
		line = append(line, part[:min(len(part), most-len(line))]...)
		switch {
		case err == nil:
			return bytes.TrimSuffix(line, []byte("\n")), size - 1, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, 0, err
		}
	}
}
