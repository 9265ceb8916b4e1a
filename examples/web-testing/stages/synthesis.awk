# Synthesis gathers the anomalies, and writes the report when the observation is
# complete.
END {
	if (FAILED) exit 1
	input()
	for (n = 1; n <= LEN["state.anomalies"]; n++) add(IN["state.anomalies." n])
	for (e = 1; e <= LEN["events"]; e++) {
		at = "events." e ".data"
		if (IN["events." e ".type"] == "anomaly_detected") add(IN[at ".text"])
		else publish("final_report", "{\"tests\": " IN[at ".tests"] ", \"failed\": " IN[at ".failed"] \
			", \"slowest\": {\"what\": " quote(IN[at ".where"]) ", \"ms\": " IN[at ".slowest"] "}, \"anomalies\": [" anomalies() "]}")
	}
	keep("{\"anomalies\": [" anomalies() "]}")
	answer()
}

# add keeps the anomalies in their order, so that it does not matter which came first.
function add(text,   i) {
	for (i = ++count; i > 1 && all[i - 1] > text; i--) all[i] = all[i - 1]
	all[i] = text
}

function anomalies(   i, s) {
	for (i = 1; i <= count; i++) s = s (i > 1 ? ", " : "") quote(all[i])
	return s
}
