# A JSON reader for the stages. The whole input is read into IN, so that
#
#	IN["events.1.data.path"]   is a string or a number, as text
#	LEN["events"]              is how many items a list has, counted from 1
#
# and quote(text) writes a string. publish(type, data) adds an event to the
# answer, keep(state) the state; both take JSON. The answer is printed at the end.
{ TEXT = TEXT $0 "\n" }

function input() { POS = 1; value(""); }

function blank() { while (substr(TEXT, POS, 1) ~ /^[ \t\r\n]$/) POS++ }

function fail(what) {
	printf "input, character %d: %s\n", POS, what > "/dev/stderr"
	FAILED = 1
	exit 1
}

function value(path,   c) {
	blank()
	c = substr(TEXT, POS, 1)
	if (c == "{") object(path)
	else if (c == "[") array(path)
	else if (c == "\"") IN[path] = string()
	else if (match(substr(TEXT, POS, 40), /^[-+.0-9a-zA-Z]+/)) {
		IN[path] = substr(TEXT, POS, RLENGTH)
		POS += RLENGTH
	} else fail("a value is missing")
}

function object(path,   key) {
	POS++
	for (blank(); substr(TEXT, POS, 1) != "}"; blank()) {
		key = string()
		blank()
		if (substr(TEXT, POS++, 1) != ":") fail("a colon is missing")
		value(path == "" ? key : path "." key)
		blank()
		if (substr(TEXT, POS, 1) == ",") POS++
	}
	POS++
}

function array(path,   n) {
	POS++
	for (blank(); substr(TEXT, POS, 1) != "]"; blank()) {
		value(path "." ++n)
		blank()
		if (substr(TEXT, POS, 1) == ",") POS++
	}
	LEN[path] = n + 0
	POS++
}

function string(   s, c) {
	if (substr(TEXT, POS, 1) != "\"") fail("a string is missing")
	POS++
	for (;;) {
		match(substr(TEXT, POS), /^[^"\\]*/)
		s = s substr(TEXT, POS, RLENGTH)
		POS += RLENGTH
		c = substr(TEXT, POS++, 1)
		if (c == "\"") return s
		if (c == "") fail("a string has no end")
		c = substr(TEXT, POS++, 1)
		if (c == "n") s = s "\n"
		else if (c == "t") s = s "\t"
		else if (c == "u") { s = s unicode(substr(TEXT, POS, 4)); POS += 4 }
		else s = s c
	}
}

function unicode(hex,   i, n) {
	for (i = 1; i <= 4; i++) n = n * 16 + index("0123456789abcdef", tolower(substr(hex, i, 1))) - 1
	return n < 128 ? sprintf("%c", n) : "?"
}

function quote(s) {
	gsub(/\\/, "\\\\", s)
	gsub(/"/, "\\\"", s)
	gsub(/\n/, "\\n", s)
	gsub(/\t/, "\\t", s)
	return "\"" s "\""
}

function publish(type, data) {
	OUT = OUT (OUT == "" ? "" : ",\n  ") "{\"type\": " quote(type) ", \"data\": " data "}"
}

function keep(state) { STATE = ", \"state\": " state }

function answer() { print "{\"events\": [" OUT "]" STATE "}" }
