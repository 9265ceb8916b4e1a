package jsoncheck

import (
	"bufio"
	"bytes"
)

// IsList reports whether the JSON text that comes is a list. White space before it is read, and no more.
func IsList(r *bufio.Reader) bool {
	for {
		next, err := r.Peek(1)
		if err != nil || !bytes.Contains([]byte(" \t\r\n"), next) {
			return err == nil && next[0] == '['
		}
		_, _ = r.Discard(1) // it was peeked
	}
}
