package redact

import (
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// secretWords are the words in the name of a variable that say that its value is
// secret, in capitals. Of the last five a longer word may end in one: PGPASSWORD.
var (
	secretWords = []string{"KEY", "KEYS", "APIKEYS", "TOKENS", "SECRETS", "CREDENTIAL", "CREDENTIALS", "CREDS", "AUTH", "AUTHORIZATION", "COOKIE", "COOKIES", "DSN", "PASS", "PAT", "PASSPHRASE"}
	secretEnds  = []string{"APIKEY", "ACCESSKEY", "SECRETKEY", "PRIVATEKEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "PWD"}
	// plainWords end names that speak of a secret and hold none: AUTH_TYPE.
	plainWords = []string{"TYPE", "METHOD", "METHODS", "MODE", "POLICY", "PROVIDER", "ENABLED", "TTL", "EXPIRY", "ALGORITHM"}
)

// FromEnviron returns the values of the variables (NAME=VALUE) whose names look
// secret, and the passwords in the URLs of the others. Left out are values of less
// than MinValue bytes, paths that exist, booleans and numbers.
func FromEnviron(environ []string) (list []Value) {
	for _, kv := range environ {
		name, value, ok := strings.Cut(kv, "=")
		if !ok || name == "" {
			continue
		}
		if password := passwordOf(value); len(password) >= MinValue {
			list = append(list, Value{name, password})
		}
		if SecretName(name) && looksSecret(value) {
			list = append(list, Value{name, value})
		}
	}
	return list
}

// SecretName reports whether a variable of that name is taken for a secret: one
// of its words is KEY, TOKEN, SECRET, PASSWORD or the like, in any case.
func SecretName(name string) bool {
	if name == "PWD" || name == "OLDPWD" {
		return false
	}
	words := wordsOf(name)
	if len(words) == 0 || slices.Contains(plainWords, words[len(words)-1]) {
		return false
	}
	return slices.ContainsFunc(words, func(w string) bool {
		return slices.Contains(secretWords, w) ||
			slices.ContainsFunc(secretEnds, func(end string) bool { return strings.HasSuffix(w, end) })
	})
}

// wordsOf returns the words of a name, in capitals: API_KEY, api-key and apiKey
// have the same.
func wordsOf(name string) []string {
	var b strings.Builder
	small := false
	for _, r := range name {
		switch {
		case !unicode.IsLetter(r) && !unicode.IsDigit(r):
			r = ' '
		case small && unicode.IsUpper(r):
			b.WriteByte(' ')
		}
		small = unicode.IsLower(r)
		b.WriteRune(unicode.ToUpper(r))
	}
	return strings.Fields(b.String())
}

// looksSecret reports whether the value of a variable with a secret's name is one.
func looksSecret(value string) bool {
	if len(value) < MinValue {
		return false
	}
	if _, err := strconv.ParseFloat(value, 64); err == nil {
		return false
	}
	if filepath.IsAbs(value) {
		if _, err := os.Lstat(value); err == nil {
			return false
		}
	}
	return true
}

// passwordOf returns the password of a URL; "" if it has none.
func passwordOf(value string) string {
	if !strings.Contains(value, "://") || !strings.Contains(value, "@") {
		return ""
	}
	u, err := url.Parse(strings.TrimSpace(value))
	if err != nil || u.User == nil {
		return ""
	}
	password, _ := u.User.Password()
	return password
}
