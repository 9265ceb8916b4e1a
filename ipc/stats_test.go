package ipc

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/rs/zerolog"
)

// What goes wrong on the stream is counted and logged, with no more of it than 200 bytes.
func TestStatsAndLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		w := newWire(t.Context(), Config{Log: zerolog.New(&log)}, true)
		w.say("\xff" + strings.Repeat("g", 300) + "\n")
		w.say("[]\n")
		w.say(strings.Repeat(" ", MaxFrame+1) + "\n")
		w.say(strings.Repeat(" ", MaxFrame+2) + "\n")
		for range 3 {
			w.say(`{"jsonrpc":"2.0","id":5,"result":{}}` + "\n")
		}
		w.say(`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"what was that"}}` + "\n")
		_ = w.hangUp()
		garbage, oversized, unknown, dropped := w.Stats()
		if garbage != 1 || oversized != 2 || unknown != 3 || dropped != 0 {
			t.Errorf("counted %d garbage, %d oversized, %d unknown answers, %d dropped", garbage, oversized, unknown, dropped)
		}
		for _, want := range []string{
			`"peer":"wire"`,
			`"size":301`, `\\xff` + strings.Repeat("g", 199) + `\"`,
			`"size":1048577`, `"size":1048578`,
			`"id":"5"`, "what was that",
		} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("log lacks %s:\n%s", want, log.String())
			}
		}
		if strings.Contains(log.String(), strings.Repeat("g", 200)) {
			t.Error("log holds more than 200 bytes of garbage")
		}
	})
}
