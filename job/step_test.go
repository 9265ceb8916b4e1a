package job

import (
	"strings"
	"testing"
)

func TestValidStepID(t *testing.T) {
	for id, want := range map[string]string{
		"plan":                           "",
		"outer/inner":                    "",
		"Schritt 1: prüfen":              "",
		strings.Repeat("x", MaxStepID):   "",
		"":                               "is empty",
		strings.Repeat("x", 1+MaxStepID): "has 501 bytes, at most 500",
		"a\tb":                           "U+0009 at byte 1",
		"\xff":                           "not UTF-8",
		"a\u202eb":                       "U+202E",
		"larger than any: \U0010FFFF":    "U+10FFFF",
		"a\u200bz":                       "U+200B",
	} {
		err := ValidStepID(id)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%.40q: error %v, want %q", id, err, want)
		}
	}
}

func TestStepInputs(t *testing.T) {
	short, long := strings.Repeat("x", MaxStepInputs), strings.Repeat("x", MaxStepInputs+1)
	if got := StepInputs(short); got != short {
		t.Errorf("short text became %q", got)
	}
	if got := StepInputs(long); got != HashStepInputs([]byte(long)) || len(got) > MaxStepInputs {
		t.Errorf("long text became %q", got)
	}
	// The SHA-256 of "abc", from FIPS 180-2, appendix B.1.
	if got := HashStepInputs([]byte("abc")); got != "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" {
		t.Errorf("hash %s", got)
	}
}
