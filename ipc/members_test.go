package ipc

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
	"unicode/utf8"
)

// FuzzSplitMembers compares with what encoding/json makes of an object.
func FuzzSplitMembers(f *testing.F) {
	for _, seed := range []string{
		`{}`, ` { } `, `{"a":1}`, "{\t\"a\" :\r[ 1 , {\"b\":[]} ] , \"c\":\"\"}",
		`{"a":"}\"]\\","b":-1.5e+3,"c":null , "d":true}`, `{"a":1,"a":{"a":2}}`, `{"\u0061":"\u00e9","":0}`,
		`{"jsonrpc":"2.0","id":7,"method":"x","params":{"deep":[[[["{"]]],"\\"]}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		if !utf8.Valid(frame) || checkObject(bytes.TrimRight(frame, " \t\r\n")) != nil {
			return
		}
		want := map[string]json.RawMessage{}
		if err := json.Unmarshal(frame, &want); err != nil {
			t.Fatal(err)
		}
		if got := splitMembers(frame); !reflect.DeepEqual(got, want) {
			t.Fatalf("%q\n got %q\nwant %q", frame, got, want)
		}
	})
}
