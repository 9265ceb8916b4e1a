package terminal

import (
	"encoding/json"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"unicode"
)

// obeyed holds what a terminal obeys, and what is fine.
const obeyed = "a\x1b]0;owned\x07 \r\x7f\u009b31m\u202eevil\u2066\u2028\U000e0041 \xff\xc2 é 漢\te\u0301\n+\x00"

const shown = "a^[]0;owned^G ^M^?<U+009B>31m<U+202E>evil<U+2066><U+2028><U+E0041> <FF><C2> é 漢"

func TestVisible(t *testing.T) {
	if got, want := Visible(obeyed, "\n\t"), shown+"\te\u0301\n+^@"; got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if got, want := Visible(obeyed, ""), shown+"^Ie\u0301^J+^@"; got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if got := Visible("a \xc2", ""); got != "a <C2>" {
		t.Errorf("a character that is cut off: %q", got)
	}
}

// TestVisibleWriter: however the text comes.
func TestVisibleWriter(t *testing.T) {
	for name, r := range map[string]io.Reader{"whole": strings.NewReader(obeyed + "\xe6\xbc"), "bytes": iotest.OneByteReader(strings.NewReader(obeyed + "\xe6\xbc"))} {
		var b strings.Builder
		v := NewVisibleWriter(&b)
		if _, err := io.Copy(v, onlyReader{r}); err != nil {
			t.Fatal(err)
		}
		if err := v.Close(); err != nil {
			t.Fatal(err)
		}
		if got, want := b.String(), Visible(obeyed+"\xe6\xbc", "\n\t"); got != want || !strings.HasSuffix(got, "<E6><BC>") {
			t.Errorf("%s: got  %q\nwant %q", name, got, want)
		}
	}
}

// onlyReader hides WriteTo, which would write all at once.
type onlyReader struct{ io.Reader }

// TestEncoder: the JSON says the same and holds nothing that a terminal obeys.
func TestEncoder(t *testing.T) {
	in := map[string]any{obeyed: strings.ToValidUTF8(obeyed, "?"), "raw": json.RawMessage(`"` + "\u009b\u202e\U000e0041" + `"`)}
	for _, indent := range []string{"", "  "} {
		var b strings.Builder
		enc := NewEncoder(&b)
		enc.SetIndent("", indent)
		if err := enc.Encode(in); err != nil {
			t.Fatal(err)
		}
		if i := strings.IndexFunc(b.String(), func(r rune) bool { return r != '\n' && unicode.In(r, unicode.C, unicode.Zl, unicode.Zp) }); i >= 0 {
			t.Errorf("%q is written", b.String()[i:])
		}
		plain, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		var got, want map[string]any
		if err := json.Unmarshal([]byte(b.String()), &got); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(plain, &want); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got  %q\nwant %q, %v", got, want, err)
		}
	}
	var b strings.Builder
	if err := NewEncoder(&b).Encode(json.RawMessage("\"\xff\"")); err != nil || !json.Valid([]byte(b.String())) || strings.Contains(b.String(), "\xff") {
		t.Errorf("not UTF-8: %q, %v", b.String(), err)
	}
}
