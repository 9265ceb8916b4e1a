package redact

import (
	"regexp"
	"strings"
)

// shape is what a well-known kind of token looks like. A needle, searched for at
// the speed of a search, says where to look; only there is the expression tried.
type shape struct {
	name    string
	needles []string
	// back is how many bytes before the needle the expression begins.
	back int
	// apart: no letter, digit or _ stands before it; nor a hyphen.
	apart bool
	// digit: it has a digit, else it is a word with hyphens.
	digit bool
	// text is tried from the needle on. What its group matches is the secret; all
	// of it if it has none. None matches any part of a marker.
	text *regexp.Regexp
}

// privateKey and urlPassword name the shapes that are not only expressions.
const (
	privateKey  = "private-key"
	urlPassword = "url-password"
)

const (
	// assigned is what stands between the name of a setting and its value, e.g. =
	// or ": ", with the quotes of JSON, also of JSON within JSON.
	assigned = `\\*["']?[ \t]*(?:=>|[:=])[ \t]*\\*["']?`
	// newline is one within JSON.
	newline = `(?:\\+[nr])`
)

// shapes are tried in this order.
var shapes = []shape{
	{name: "anthropic-key", needles: []string{"sk-ant-"}, text: from(`sk-ant-[A-Za-z0-9_-]{20,}`)},
	{name: "openai-key", needles: []string{"sk-"}, apart: true, digit: true, text: from(`sk-[A-Za-z0-9_-]{20,}`)},
	{name: "github-token", needles: []string{"ghp_", "gho_", "ghu_", "ghs_", "ghr_"}, text: from(`gh[pousr]_[A-Za-z0-9]{20,}`)},
	{name: "github-token", needles: []string{"github_pat_"}, text: from(`github_pat_[A-Za-z0-9_]{20,}`)},
	{name: "gitlab-token", needles: []string{"glpat-"}, digit: true, text: from(`glpat-[A-Za-z0-9_-]{20,}`)},
	{name: "slack-token", needles: []string{"xox"}, apart: true, digit: true, text: from(`xox[abeoprs]-[A-Za-z0-9-]{10,}`)},
	{name: "aws-key-id", needles: []string{"AKIA", "ASIA"}, apart: true, text: from(`(?:AKIA|ASIA)[A-Z0-9]{16}`)},
	{
		name:    "aws-secret-key",
		needles: []string{"ecret_access_key", "ECRET_ACCESS_KEY", "ecretAccessKey"}, back: 1,
		text: from(`(?i)secret_?access_?key` + assigned + `([A-Za-z0-9/+]{40})`),
	},
	{name: "google-key", needles: []string{"AIza"}, apart: true, text: from(`AIza[A-Za-z0-9_-]{35}`)},
	{name: "jwt", needles: []string{"eyJ"}, apart: true, text: from(`eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*`)},
	{name: "agentsched-token", needles: []string{"agsk_"}, text: from(`agsk_[A-Za-z0-9_-]{16,}`)},
	{
		name:    "authorization",
		needles: []string{"uthorization", "UTHORIZATION"}, back: 1,
		text: from(`(?i)authorization` + assigned + `(?:bearer|basic|token)[ \t]+([A-Za-z0-9._~+/=-]{8,})`),
	},
	{name: "bearer", needles: []string{"earer ", "EARER "}, back: 1, digit: true, text: from(`(?i)bearer[ \t]+([A-Za-z0-9._~+/=-]{20,})`)},
	{name: urlPassword, needles: []string{"://"}},
	{
		name: privateKey, needles: []string{keyBegin},
		text: from(`-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----` + newline + `*(?:[A-Za-z-]{1,40}: [^\\"]{0,200}` + newline + `+)* *` +
			`([A-Za-z0-9+/=]{16,}(?:(?: +|` + newline + `+)[A-Za-z0-9+/=]{16,})*(?:` + newline + `+[A-Za-z0-9+/=]+)?)`),
	},
}

func from(expr string) *regexp.Regexp { return regexp.MustCompile(`^(?:` + expr + `)`) }

// shapeMarkers returns what can stand in the place of a shape.
func shapeMarkers() []string {
	var list []string
	for i := range shapes {
		list = append(list, marker(shapes[i].name))
	}
	return list
}

// redactShapes puts a marker in place of each shape in a line: of two that overlap
// the one that is said first, of two that begin together the first of the list.
func redactShapes(text string) string {
	var b strings.Builder
	done := 0
	for at, n := needles.next(text, 0); n != nil; at, n = needles.next(text, at+1) {
		for ; n != nil; n = n.also {
			s := &shapes[n.shape]
			if !strings.HasPrefix(text[at:], n.text) || at < s.back {
				continue
			}
			// What stands right behind a secret stands behind a marker then.
			if start, end, found := s.find(text, at-s.back, done); found && start >= done {
				b.WriteString(text[done:start])
				b.WriteString(marker(s.name))
				done = end
				break
			}
		}
		at = max(at, done-1)
	}
	if done == 0 {
		return text
	}
	b.WriteString(text[done:])
	return b.String()
}

// find returns where the secret is in the shape that begins at a place; what
// stands before done is no longer there.
func (s *shape) find(text string, at, done int) (start, end int, found bool) {
	if s.apart && inWord(text[min(at, done):at]) {
		return 0, 0, false
	}
	if s.name == urlPassword {
		return findPassword(text, at+len("://"))
	}
	m := s.text.FindStringSubmatchIndex(text[at:])
	if m == nil {
		return 0, 0, false
	}
	start, end = at+m[len(m)-2], at+m[len(m)-1]
	if s.digit && !strings.ContainsAny(text[start:end], "0123456789") {
		return 0, 0, false
	}
	return start, end, true
}

// findPassword returns where the password is in user:password@host, which begins
// at a place (RFC 3986, section 3.2.1).
func findPassword(text string, at int) (start, end int, found bool) {
	for i := at; i < len(text); i++ {
		switch c := text[i]; {
		case c == ':' && start == 0:
			start = i + 1
		case c == '@':
			return start, i, start > 0 && start < i
		case c <= ' ' || strings.IndexByte(`/?#"'<>\[]`, c) >= 0:
			return 0, 0, false
		}
	}
	return 0, 0, false
}

// inWord reports whether what follows text goes on with a word of it. The end of
// an escape sequence (of JSON, of a URL, of a terminal's colours) is no part of
// a word.
func inWord(text string) bool {
	n := len(text)
	if n == 0 || !isWord(text[n-1]) {
		return false
	}
	switch {
	case n >= 2 && text[n-2] == '\\' && strings.IndexByte("bfnrt", text[n-1]) >= 0,
		n >= 3 && text[n-3] == '%',
		n >= 6 && text[n-6] == '\\' && text[n-5] == 'u':
		return false
	case text[n-1] == 'm':
		head := strings.TrimRight(text[:n-1], "0123456789;")
		return !strings.HasSuffix(head, "\x1b[") && !strings.HasSuffix(head, "1b[") && !strings.HasSuffix(head, "1B[") && !strings.HasSuffix(head, "033[")
	}
	return true
}

func isWord(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
}
