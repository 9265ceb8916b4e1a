# Observer tells what is out of the ordinary at once, keeps count, and says at
# the end what it has seen. What it counts does not depend on the order.
END {
	if (FAILED) exit 1
	input()
	tests = IN["state.tests"] + 0
	failed = IN["state.failed"] + 0
	slowest = IN["state.slowest"] + 0
	where = IN["state.where"]
	for (e = 1; e <= LEN["events"]; e++) {
		at = "events." e ".data"
		what = IN[at ".what"]
		if (IN["events." e ".type"] == "load_result") {
			tests++
			if (IN[at ".ok"] == "false") {
				failed++
				publish("anomaly_detected", "{\"text\": " quote(what " " IN[at ".why"]) "}")
			}
			continue
		}
		ms = IN[at ".ms"] + 0
		if (ms > 200) publish("anomaly_detected", "{\"text\": " quote(what " takes " ms " ms, more than 200") "}")
		if (ms > slowest || ms == slowest && what < where) { slowest = ms; where = what }
	}
	counts = "{\"tests\": " tests ", \"failed\": " failed ", \"slowest\": " slowest ", \"where\": " quote(where) "}"
	keep(counts)
	if (IN["end"] == "true") publish("observation_complete", counts)
	answer()
}
