package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"unicode/utf16"
)

// spellings returns the patterns by which a value is found: itself, and as it
// looks within JSON (also within JSON that is a string of JSON), in a URL, in
// base64 and in hexadecimal. Of a value of several lines each line stands for
// itself; its encodings are of the whole and of each line.
func spellings(value string) (list []string) {
	value = strings.TrimRight(value, "\r\n")
	if len(value) < MinValue {
		return nil
	}
	lines := []string{value}
	if strings.ContainsAny(value, "\r\n") {
		list = append(list, quoted(value)...)
		list = append(list, encoded(value)...)
		lines = strings.FieldsFunc(value, func(r rune) bool { return r == '\r' || r == '\n' })
	}
	for _, line := range lines {
		if len(line) < MinValue || isKeyFrame(line) {
			continue
		}
		list = append(list, line)
		list = append(list, quoted(line)...)
		list = append(list, encoded(line)...)
	}
	return list
}

// quoted returns a value as JSON writes it, in the ways in which that is done.
func quoted(value string) (list []string) {
	for _, write := range []func(string) string{
		func(s string) string { return jsonString(s, false) },
		func(s string) string { return jsonString(s, true) },
		asciiString,
	} {
		once := write(value)
		list = append(list, once, strings.ReplaceAll(once, "/", `\/`), write(once))
	}
	return list
}

// jsonString returns s as it stands between the quotes of a JSON string.
func jsonString(s string, html bool) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(html)
	if enc.Encode(s) != nil {
		return s
	}
	return strings.TrimSuffix(strings.TrimPrefix(strings.TrimSuffix(b.String(), "\n"), `"`), `"`)
}

// asciiString is jsonString as those write it who escape all that is not ASCII.
func asciiString(s string) string {
	var b strings.Builder
	for _, r := range jsonString(s, false) {
		switch {
		case r < 0x80:
			b.WriteRune(r)
		case r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		}
	}
	return b.String()
}

// encoded returns a value in base64, hexadecimal, and percent-encoded.
func encoded(value string) (list []string) {
	for _, percent := range []string{url.QueryEscape(value), url.PathEscape(value), strings.ReplaceAll(url.QueryEscape(value), "+", "%20")} {
		list = append(list, percent, lowerPercent(percent))
	}
	digits := hex.EncodeToString([]byte(value))
	list = append(list, digits, strings.ToUpper(digits))
	for _, enc := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding} {
		list = append(list, enc.EncodeToString([]byte(value)), enc.EncodeToString([]byte(value+"\n")))
		for offset := range 3 {
			list = append(list, within(enc, value, offset))
		}
		list = append(list, wrapped(enc.EncodeToString([]byte(value)))...)
	}
	return list
}

// within returns the characters that a value always has in the base64 of a text
// in which it begins offset bytes, modulo 3, from the start: those at the edges
// share their bits with what stands beside it.
func within(enc *base64.Encoding, value string, offset int) string {
	text := enc.WithPadding(base64.NoPadding).EncodeToString([]byte("\x00\x00"[:offset] + value))
	first := []int{0, 2, 3}[offset]
	if (offset+len(value))%3 != 0 {
		text = text[:len(text)-1]
	}
	return text[min(first, len(text)):]
}

// wrapped returns the lines into which programs break a long base64 text: at 76
// characters (RFC 2045) or at 64 (RFC 7468).
func wrapped(text string) (list []string) {
	for _, width := range []int{76, 64} {
		for rest := text; len(text) > width && rest != ""; {
			n := min(width, len(rest))
			list = append(list, rest[:n])
			rest = rest[n:]
		}
	}
	return list
}

// lowerPercent writes the hexadecimal digits of percent-encoding small.
func lowerPercent(text string) string {
	b := []byte(text)
	for i := 0; i+2 < len(b); i++ {
		if b[i] == '%' {
			copy(b[i:i+3], bytes.ToLower(b[i:i+3]))
		}
	}
	return string(b)
}
