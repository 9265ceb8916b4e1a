package redact_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/agentsched/agentsched/internal/redact"
)

func TestShapes(t *testing.T) {
	r := redact.New()
	long := strings.Repeat("aB3dEf", 10)
	for _, c := range []struct{ name, text, want string }{
		{"openai", "key sk-" + long + ".", "key [redacted:openai-key]."},
		{"openai project", "sk-proj-" + long, "[redacted:openai-key]"},
		{"anthropic", "x=sk-ant-api03-" + long, "x=[redacted:anthropic-key]"},
		{"within JSON", `{"text":"line\nsk-` + long + `"}`, `{"text":"line\n[redacted:openai-key]"}`},
		{"in colour", "\x1b[31msk-" + long + "\x1b[0m", "\x1b[31m[redacted:openai-key]\x1b[0m"},
		{"in a query", "a%3Dsk-" + long, "a%3D[redacted:openai-key]"},
		{"github", "ghp_" + long[:36], "[redacted:github-token]"},
		{"github oauth", "gho_" + long[:36], "[redacted:github-token]"},
		{"github fine", "github_pat_" + long, "[redacted:github-token]"},
		{"gitlab", "glpat-" + long[:20], "[redacted:gitlab-token]"},
		{"slack", "xoxb-1234567890-abcdef", "[redacted:slack-token]"},
		{"aws id", "AKIAIOSFODNN7EXAMPLE", "[redacted:aws-key-id]"},
		{"aws secret", "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "aws_secret_access_key = [redacted:aws-secret-key]"},
		{"aws secret in JSON", `"SecretAccessKey": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"`, `"SecretAccessKey": "[redacted:aws-secret-key]"`},
		{"google", "AIza" + long[:35], "[redacted:google-key]"},
		{"jwt", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmN", "[redacted:jwt]"},
		{"ours", "agsk_" + long[:32], "[redacted:agentsched-token]"},
		{"authorization", "Authorization: Bearer abcdefgh", "Authorization: Bearer [redacted:authorization]"},
		{"authorization in JSON", `{\"authorization\":\"Basic dXNlcjpwYXNz\"}`, `{\"authorization\":\"Basic [redacted:authorization]\"}`},
		{"bearer", "-H 'bearer " + long + "'", "-H 'bearer [redacted:bearer]'"},
		{"url", "postgres://me:hunter2@db/x and http://a:b@c", "postgres://me:[redacted:url-password]@db/x and http://a:[redacted:url-password]@c"},
		{"key", "-----BEGIN RSA PRIVATE KEY-----\nMIIEabcd\nshort=\n-----END RSA PRIVATE KEY-----\nafter", "-----BEGIN RSA PRIVATE KEY-----\n[redacted:private-key]\n[redacted:private-key]\n-----END RSA PRIVATE KEY-----\nafter"},
		{"key with headers", "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nMIIEabcd\n-----END", "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\n[redacted:private-key]\n-----END"},
		{
			"key in JSON", `"-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG\nabc=\n-----END PRIVATE KEY-----\n"`,
			`"-----BEGIN PRIVATE KEY-----\n[redacted:private-key]\n-----END PRIVATE KEY-----\n"`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := r.String(c.text); got != c.want {
				t.Errorf("String(%q)\n got %q\nwant %q", c.text, got, c.want)
			}
			if got := r.String(c.want); got != c.want {
				t.Errorf("again: %q became %q", c.want, got)
			}
		})
	}
}

// What only looks like a token stays.
func TestOrdinaryTextStays(t *testing.T) {
	r := redact.New(redact.FromEnviron([]string{"API_TOKEN=correct-horse-battery"})...)
	for _, text := range []string{
		"", "\n", "a\r\nb", "risk-management-of-the-task-force-team", "the sk-folding-cube-container-of-things", "task-0123456789-0123456789-abc",
		"https://example.org/a?b=c@d", "ssh://git@example.org:22/x", "http://localhost:8080/@scope", "the bearer of good news is here today",
		"-----BEGIN CERTIFICATE-----\nMIIEabcdMIIEabcdMIIEabcd\n-----END CERTIFICATE-----", "a -----BEGIN PRIVATE KEY----- in a sentence\nhello",
		"AKIA", "eyJhbGciOiJIUzI1NiJ9", "[redacted:openai-key]", "correct-horse", "xoxo-love-and-kisses", "\xff\xfe broken \x00",
	} {
		if got := r.String(text); got != text {
			t.Errorf("%q became %q", text, got)
		}
		in := []byte(text)
		if got := r.Bytes(in); len(in) > 0 && &got[0] != &in[0] {
			t.Errorf("%q was copied", text)
		}
	}
	for _, pattern := range []string{"../../job/*.go", "../../docs/*.md", "../../worker/claude/testdata/*.jsonl", "../../worker/codex/testdata/*.transcript"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v, %v", pattern, files, err)
		}
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			if got := r.Bytes(text); !bytes.Equal(got, text) && !strings.Contains(f, "audit.md") {
				t.Errorf("%s was changed", f)
			}
		}
	}
}

func TestEnvironment(t *testing.T) {
	dir := t.TempDir()
	for name, secret := range map[string]bool{
		"API_KEY": true, "apiKey": true, "OPENAI_API_KEY": true, "github-token": true, "GITHUB_TOKEN": true, "PGPASSWORD": true, "DB_PASS": true,
		"MYSQL_PWD": true, "SESSION_COOKIE": true, "SENTRY_DSN": true, "GOOGLE_CREDENTIALS": true, "PROXY_AUTH": true, "DbPasswd": true, "NPM_TOKENS": true,
		"PWD": false, "OLDPWD": false, "MONKEY": false, "GIT_AUTHOR_NAME": false, "KEYBOARD": false, "AUTH_TYPE": false, "TOKEN_TTL": false, "BYPASS": false, "": false,
	} {
		if redact.SecretName(name) != secret {
			t.Errorf("SecretName(%q) = %v", name, !secret)
		}
	}
	for kv, want := range map[string]string{
		"A_TOKEN=12345678": "", "A_TOKEN=short": "", "A_TOKEN=" + dir: "", "NAME=value-value": "", "A_TOKEN=-1.5e100": "",
		"A_TOKEN=abcdefgh": "abcdefgh", "A_TOKEN=/no/such/file": "/no/such/file", "A_TOKEN": "",
		"URL=postgres://u:swordfish@h/db": "swordfish", "URL=postgres://u:s@h/db": "", "HTTPS_PROXY=http://u:pass%40word@h": "pass@word",
	} {
		list := redact.FromEnviron([]string{kv})
		if got := fmt.Sprint(list); want == "" && len(list) > 0 || want != "" && (len(list) != 1 || list[0].Text != want) {
			t.Errorf("%s: %s, want %q", kv, got, want)
		}
	}
}

// spell writes a secret in one of the ways that are found.
func spell(rt *rapid.T, secret string) (spelled, must string) {
	before := rapid.StringMatching(`[a-z ]{0,5}`).Draw(rt, "before")
	after := rapid.StringMatching(`[a-z ]{0,5}`).Draw(rt, "after")
	quote := func(s string) string {
		text, _ := json.Marshal(s)
		return string(text)
	}
	inside := func(s string) string { s = quote(s); return s[1 : len(s)-1] }
	switch rapid.SampledFrom([]string{"plain", "json", "json twice", "query", "path", "hex", "HEX", "base64", "base64url", "lines"}).Draw(rt, "spelling") {
	case "json":
		return quote(before + secret + after), inside(secret)
	case "json twice":
		return quote(quote(before + secret + after)), inside(inside(secret))
	case "query":
		return url.QueryEscape(before + secret + after), url.QueryEscape(secret)
	case "path":
		return url.PathEscape(before + secret + after), url.PathEscape(secret)
	case "hex":
		return hex.EncodeToString([]byte(before + secret + after)), hex.EncodeToString([]byte(secret))
	case "HEX":
		text := strings.ToUpper(hex.EncodeToString([]byte(secret)))
		return before + text + after, text
	case "base64":
		return base64.StdEncoding.EncodeToString([]byte(before + secret + after)), core64(base64.RawStdEncoding, len(before), secret)
	case "base64url":
		return base64.RawURLEncoding.EncodeToString([]byte(before + secret + after)), core64(base64.RawURLEncoding, len(before), secret)
	case "lines":
		text := base64.StdEncoding.EncodeToString([]byte(secret))
		var b strings.Builder
		for len(text) > 76 {
			b.WriteString(text[:76] + "\n")
			text = text[76:]
		}
		b.WriteString(text)
		first, _, _ := strings.Cut(b.String(), "\n")
		return "\n" + b.String() + "\n", strings.TrimRight(first, "=")
	}
	return before + secret + after, secret
}

// core64 returns what only depends on the secret.
func core64(enc *base64.Encoding, before int, secret string) string {
	text := enc.EncodeToString([]byte(strings.Repeat("x", before%3) + secret))
	first := []int{0, 2, 3}[before%3]
	last := len(text)
	if (before%3+len(secret))%3 != 0 {
		last--
	}
	return text[first:last]
}

var secrets = rapid.OneOf(
	rapid.StringMatching(`[A-Za-z0-9+/_=-]{8,90}`),
	rapid.StringMatching(`[a-c"\\/<>& %é∑🙂\t]{12,20}`),
	rapid.StringMatching(`[\[\]:a-z]{16,24}xyzxyzxyz[\]\[]{0,3}`),
	rapid.StringMatching(`[A-Za-z0-9]{30,60}\n[A-Za-z0-9 "]{20,30}`),
)

// A planted secret is never in what comes out, however it is spelled and however
// the text is cut on its way in.
func TestPlantedSecretIsNeverThere(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		secret := secrets.Draw(rt, "secret")
		r := redact.New(redact.Value{Name: "PLANTED", Text: secret}, redact.Value{Name: "OTHER", Text: "something-else"})
		var text strings.Builder
		var musts []string
		for range rapid.IntRange(1, 4).Draw(rt, "plants") {
			spelled, must := spell(rt, secret)
			text.WriteString(rapid.StringMatching(`[a-z \n"{}:,]{0,40}`).Draw(rt, "text") + " " + spelled + " ")
			musts = append(musts, must)
		}
		whole := text.String()
		clean := r.String(whole)
		for _, must := range musts {
			if strings.Contains(clean, must) {
				rt.Fatalf("%q is left in %q", must, clean)
			}
		}
		if again := r.String(clean); again != clean {
			rt.Fatalf("%q became %q the second time", clean, again)
		}
		var out bytes.Buffer
		w := r.Writer(&out)
		for rest := whole; rest != ""; {
			n := rapid.IntRange(1, len(rest)).Draw(rt, "piece")
			if _, err := io.WriteString(w, rest[:n]); err != nil {
				rt.Fatal(err)
			}
			rest = rest[n:]
		}
		if err := w.Close(); err != nil || out.String() != clean {
			rt.Fatalf("the stream gave %q, %v, the text %q", out.String(), err, clean)
		}
	})
}

// Text in which no secret stands is unchanged.
func TestTextWithoutSecrets(t *testing.T) {
	r := redact.New(redact.Value{Name: "A", Text: "aaaaaaab"}, redact.Value{Name: "B", Text: "0123456789abcdef"})
	rapid.Check(t, func(rt *rapid.T) {
		text := string(rapid.SliceOf(rapid.SampledFrom([]byte("aaaaab\n\r\"-_[]:0\xff"))).Draw(rt, "text"))
		want := strings.ReplaceAll(text, "aaaaaaab", "[redacted:A]")
		if got := r.String(text); got != want {
			rt.Fatalf("%q became %q, want %q", text, got, want)
		}
	})
}

// Tokens without anything between them are found in one go: a line that is made
// of nothing else takes no longer than another.
func TestTokensInARow(t *testing.T) {
	r := redact.New()
	for token, name := range map[string]string{"AKIAIOSFODNN7EXAMPLE": "aws-key-id", "AIza" + strings.Repeat("x", 35): "google-key"} {
		const times = 20_000
		if got, want := r.String(strings.Repeat(token, times)), strings.Repeat("[redacted:"+name+"]", times); got != want {
			t.Errorf("%s: %d bytes, want %d", name, len(got), len(want))
		}
	}
}

// Of two that overlap the first, of two that begin together the longer.
func TestOverlaps(t *testing.T) {
	r := redact.New(redact.Value{Name: "SHORT", Text: "abcdefgh"}, redact.Value{Name: "LONG", Text: "abcdefghijkl"}, redact.Value{Name: "NEXT", Text: "ijklmnopqr"})
	for text, want := range map[string]string{
		"abcdefghijklmnopqr": "[redacted:LONG]mnopqr",
		"abcdefghijk":        "[redacted:SHORT]ijk",
		"abcdefgijklmnopqr":  "abcdefg[redacted:NEXT]",
	} {
		if got := r.String(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}

// What a marker says cannot be told from a marker, and one put in makes no
// secret with what stands beside it.
func TestMarkersAndValues(t *testing.T) {
	r := redact.New(redact.Value{Name: "PASSWORD", Text: "PASSWORD"}, redact.Value{Name: "ODD", Text: "]abcdefgh[re"}, redact.Value{Name: "b@d", Text: "ijklmnop"})
	for text, want := range map[string]string{
		"PASSWORD ijklmnop":    "PASSWORD [redacted:b_d]",
		"ijklmnopabcdefgh":     "[redacted:b_d][redacted:ODD]",
		"]abcdefgh[reijklmnop": "][redacted:ODD][re[redacted:b_d]",
	} {
		if got := r.String(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}

func TestJSON(t *testing.T) {
	r := redact.New().With(redact.Value{Name: "K", Text: `pass"word`})
	got, err := r.JSON(map[string]any{"a": `x pass"word`, `pass"word`: []any{1, true, nil, json.RawMessage(`"p\u0061ss\"word"`)}, "n": 12345678901234567})
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"[redacted:K]":[1,true,null,"[redacted:K]"],"a":"x [redacted:K]","n":12345678901234567}`; string(got) != want {
		t.Errorf("got %s, want %s", got, want)
	}
	r = r.With(redact.Value{Name: "PLAIN", Text: "swordfish"})
	for value, want := range map[any]string{
		"a swordfish": `"a [redacted:PLAIN]"`, "sword\tfish": `"sword\tfish"`, "s&wordfish": `"s\u0026wordfish"`,
		struct{ Z, A string }{"no", "secret"}: `{"Z":"no","A":"secret"}`,
	} {
		if got, err := r.JSON(value); err != nil || string(got) != want {
			t.Errorf("%v became %s, %v, want %s", value, got, err, want)
		}
	}
	if _, err := r.JSON(make(chan int)); err == nil {
		t.Error("a channel was taken for JSON")
	}
}

func TestNilRedactorChangesNothing(t *testing.T) {
	var r *redact.Redactor
	text := "sk-" + strings.Repeat("a1", 20)
	if r.String(text) != text || string(r.Bytes([]byte(text))) != text || string(r.Lines()([]byte(text))) != text {
		t.Error("changed")
	}
}

// An overlong line goes on in parts, and a secret across its parts is found.
func TestWriterOverlongLine(t *testing.T) {
	secret := "correct-horse-battery"
	r := redact.New(redact.Value{Name: "K", Text: secret})
	for _, shift := range []int{0, 1, 10, 20, 21} {
		text := strings.Repeat("x", 1<<20-32<<10-10-shift) + secret + strings.Repeat("y", 1<<20) + secret
		var out bytes.Buffer
		w := r.Writer(&out)
		for chunk := text; chunk != ""; {
			n := min(len(chunk), 100_000)
			if _, err := io.WriteString(w, chunk[:n]); err != nil {
				t.Fatal(err)
			}
			chunk = chunk[n:]
		}
		if out.Len() == 0 {
			t.Error("all of it is held")
		}
		if err := w.Flush(); err != nil || out.String() != r.String(text) {
			t.Errorf("shift %d: %d bytes, %v, want %d", shift, out.Len(), err, len(r.String(text)))
		}
	}
}

type failing struct{ err error }

func (f *failing) Write(p []byte) (int, error) { return len(p), f.err }

func TestWriterTellsOfErrors(t *testing.T) {
	below := &failing{err: errors.New("full")}
	w := redact.New().Writer(below)
	if _, err := io.WriteString(w, "held"); err != nil {
		t.Errorf("nothing was to be written: %v", err)
	}
	if _, err := io.WriteString(w, "line\n"); !errors.Is(err, below.err) {
		t.Errorf("error %v", err)
	}
	below.err = nil
	if _, err := io.WriteString(w, "line\n"); err != nil {
		t.Errorf("again: %v", err)
	}
}

func FuzzRedact(f *testing.F) {
	f.Add("text with secret-value in it", "secret-value", uint8(3))
	f.Add("-----BEGIN PRIVATE KEY-----\nabcd\n\nx: y\n", "]aaaaaaaa[r", uint8(1))
	f.Add("Authorization: Bearer sk-ant-0123456789012345678901 http://a:b@c", "aaaaaaab", uint8(0))
	f.Fuzz(func(t *testing.T, text, value string, chunk uint8) {
		r := redact.New(redact.Value{Name: "V", Text: value})
		clean := r.String(text)
		if again := r.String(clean); again != clean {
			t.Fatalf("%q, then %q", clean, again)
		}
		var out bytes.Buffer
		w := r.Writer(&out)
		for rest := text; rest != ""; {
			n := min(int(chunk)+1, len(rest))
			io.WriteString(w, rest[:n])
			rest = rest[n:]
		}
		if w.Close(); out.String() != clean {
			t.Fatalf("stream %q, text %q", out.String(), clean)
		}
	})
}

func BenchmarkString(b *testing.B) {
	var env []string
	for i := range 20 {
		env = append(env, fmt.Sprintf("SERVICE_%d_TOKEN=%064x", i, i*7919+13))
	}
	event := "go test ./... ok  	github.com/agentsched/agentsched/job	0.012s"
	large := strings.Repeat(event+` {"type":"item.completed","item":{"id":"item_1","text":"I looked at the file and changed it"}}`+"\n", 4096)
	for _, c := range []struct {
		name, text string
		r          *redact.Redactor
	}{
		{"event/none", event, redact.New()},
		{"event/20", event, redact.New(redact.FromEnviron(env)...)},
		{"large/none", large, redact.New()},
		{"large/20", large, redact.New(redact.FromEnviron(env)...)},
		{"large/20/found", strings.ReplaceAll(large, "item_1", fmt.Sprintf("%064x", 13)), redact.New(redact.FromEnviron(env)...)},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(c.text)))
			b.ReportAllocs()
			for b.Loop() {
				c.r.String(c.text)
			}
		})
	}
}
