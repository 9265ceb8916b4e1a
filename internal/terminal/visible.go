package terminal

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Visible returns text so that a terminal shows all of it and obeys none of it.
// Control characters become ^[, other characters without a shape, such as those
// that turn the direction of writing, <U+202E>, and bytes that are not UTF-8 <9B>.
// The characters in keep stay as they are, e.g. "\n\t".
func Visible(text, keep string) string {
	if !strings.ContainsFunc(text, hidden) && utf8.ValidString(text) {
		return text
	}
	out, part := appendVisible(nil, []byte(text), keep)
	return string(appendBytes(out, part))
}

// VisibleWriter writes lines of text as Visible returns them, with newlines and
// tabs as they are. Close writes what a last character lacks; it does not close w.
type VisibleWriter struct {
	w         io.Writer
	part, out []byte // part: the begin of a character
}

// NewVisibleWriter returns a VisibleWriter that writes to w.
func NewVisibleWriter(w io.Writer) *VisibleWriter { return &VisibleWriter{w: w} }

func (v *VisibleWriter) Write(p []byte) (int, error) {
	var rest []byte
	v.out, rest = appendVisible(v.out[:0], append(v.part, p...), "\n\t")
	v.part = append([]byte(nil), rest...)
	if _, err := v.w.Write(v.out); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Close implements io.Closer.
func (v *VisibleWriter) Close() error {
	_, err := v.w.Write(appendBytes(nil, v.part))
	v.part = nil
	return err
}

// NewEncoder returns an encoder whose JSON says the same as any, in characters
// that a terminal shows: JSON leaves the control characters above 0x7e and those
// that turn the direction of writing as they are, here they are \u009b and the
// like. All JSON that a command prints is written by it.
func NewEncoder(w io.Writer) *json.Encoder { return json.NewEncoder(&jsonWriter{w: w}) }

// jsonWriter takes whole values, as an Encoder writes them. What is hidden can
// stand in their strings only, but for the newlines between.
type jsonWriter struct {
	w   io.Writer
	out []byte
}

func (j *jsonWriter) Write(p []byte) (int, error) {
	out := j.out[:0]
	for rest := p; len(rest) > 0; {
		plain := 0
		for plain < len(rest) && (rest[plain] >= ' ' && rest[plain] < 0x7f || rest[plain] == '\n') {
			plain++
		}
		if plain > 0 {
			out, rest = append(out, rest[:plain]...), rest[plain:]
			continue
		}
		r, n := utf8.DecodeRune(rest)
		switch {
		case r == utf8.RuneError && n == 1: // of a json.RawMessage
			out = append(out, `\ufffd`...)
		case !hidden(r):
			out = append(out, rest[:n]...)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		rest = rest[n:]
	}
	j.out = out
	if _, err := j.w.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}

// hidden reports whether a terminal would obey a character, or show nothing.
func hidden(r rune) bool {
	return r < ' ' || r >= 0x7f && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
}

// appendVisible returns out with what is visible of text, and the begin of a
// character at the end of it.
func appendVisible(out, text []byte, keep string) (_, rest []byte) {
	for len(text) > 0 {
		if !utf8.FullRune(text) {
			return out, text
		}
		r, n := utf8.DecodeRune(text)
		switch {
		case r == utf8.RuneError && n == 1:
			out = appendBytes(out, text[:1])
		case !hidden(r) || strings.ContainsRune(keep, r):
			out = append(out, text[:n]...)
		case r < 0x80:
			out = append(out, '^', byte(r)^0x40)
		default:
			out = fmt.Appendf(out, "<U+%04X>", r)
		}
		text = text[n:]
	}
	return out, nil
}

func appendBytes(out, text []byte) []byte {
	for _, b := range text {
		out = fmt.Appendf(out, "<%02X>", b)
	}
	return out
}
