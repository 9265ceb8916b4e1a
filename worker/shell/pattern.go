package shell

import "strings"

// pattern is one entry of allow_commands, split into words. In a word, * stands
// for any text (but not for a slash in the first word, the program's name); as
// the last word it stands for any further words, none included. So "go test *"
// allows `go test` and `go test -v ./...`, and "./scripts/*" allows
// `./scripts/lint` without arguments.
type pattern []string

func parsePatterns(texts []string) []pattern {
	var patterns []pattern
	for _, t := range texts {
		if words := strings.Fields(t); len(words) > 0 {
			patterns = append(patterns, words)
		}
	}
	return patterns
}

// everything reports whether p is "*": any command whatever.
func (p pattern) everything() bool { return len(p) == 1 && p[0] == "*" }

// matches reports whether p allows a command of these words. What a dynamic
// word will be is not known, so only a last * allows it.
func (p pattern) matches(words []word) bool {
	fixed := p
	rest := p[len(p)-1] == "*"
	if rest {
		fixed = p[:len(p)-1]
	}
	if len(words) < len(fixed) || len(words) > len(fixed) && !rest {
		return false
	}
	for i, want := range fixed {
		match := glob
		if i == 0 {
			match = globName
		}
		if words[i].dynamic || !match(want, words[i].text) {
			return false
		}
	}
	return true
}

// glob matches text against a pattern in which * is any run of bytes, in time
// proportional to the product of their lengths.
func glob(pattern, text string) bool {
	p, t := 0, 0
	star, resume := -1, 0 // the last * seen, and where what follows it was tried
	for t < len(text) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, resume = p, t
			p++
		case p < len(pattern) && pattern[p] == text[t]:
			p++
			t++
		case star >= 0:
			resume++
			p, t = star+1, resume
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}

// globName is glob for the name of a program, where * does not match a slash.
func globName(pattern, name string) bool {
	want, have := strings.Split(pattern, "/"), strings.Split(name, "/")
	if len(want) != len(have) {
		return false
	}
	for i := range want {
		if !glob(want[i], have[i]) {
			return false
		}
	}
	return true
}
