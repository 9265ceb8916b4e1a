package redact

import "strings"

// A private key in PEM (RFC 7468) has many lines. Its first and last say what it
// is and stay; each line of its body is redacted.
const (
	keyBegin = "-----BEGIN "
	keyEnd   = "-----END "
)

// endsInKey reports whether a private key begins on the line, and goes on behind it.
func endsInKey(line string) bool {
	line = strings.TrimRight(line, " \t\r")
	return (strings.HasSuffix(line, "PRIVATE KEY-----") || strings.HasSuffix(line, "PRIVATE KEY BLOCK-----")) &&
		strings.LastIndex(line, keyBegin) > strings.LastIndex(line, keyEnd)
}

// isKeyHeader reports whether the line may stand in a key before its body.
func isKeyHeader(line string) bool {
	if strings.TrimSpace(line) == "" {
		return true
	}
	name, _, ok := strings.Cut(line, ": ")
	return ok && !strings.ContainsAny(name, " \t")
}

// isKeyBody reports whether the line is base64.
func isKeyBody(line string) bool {
	line = strings.TrimSpace(line)
	for i := range len(line) {
		if c := line[i]; !isWord(c) && c != '+' && c != '/' && c != '=' || c == '_' || c == '-' {
			return false
		}
	}
	return line != ""
}

// isKeyFrame reports whether the line is a key's first or last, which is in every key.
func isKeyFrame(line string) bool {
	return strings.HasPrefix(line, keyBegin) || strings.HasPrefix(line, keyEnd)
}
