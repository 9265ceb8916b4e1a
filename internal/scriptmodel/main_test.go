package scriptmodel

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	flag.Bool("update", false, "rewrite the golden transcripts in testdata")
	goleak.VerifyTestMain(m)
}

func updating() bool { return flag.Lookup("update").Value.String() == "true" }
