# Load makes each test against the site and says how it went and how long it
# took: 20 ms, and one for each 1000 bytes of a page, images included.
END {
	if (FAILED) exit 1
	input()
	while ((getline line < (site "/api.txt")) > 0) if (split(line, f, " ") == 4 && f[1] != "#") {
		status[f[1] " " f[2]] = f[3]
		took[f[1] " " f[2]] = f[4]
	}
	for (e = 1; e <= LEN["events"]; e++) {
		at = "events." e
		if (IN[at ".type"] == "flow_mapped") flow(IN[at ".data.name"], at ".data.steps")
		else if (IN[at ".data.kind"] == "page") page(IN[at ".data.page"], IN[at ".data.expect"])
		else call(IN[at ".data.kind"], IN[at ".data.page"], IN[at ".data.expect"])
	}
	answer()
}

function page(path, title,   bytes) {
	bytes = weigh(path)
	if (bytes < 0) result("page " path, "is not there")
	else result("page " path, index(content, "<title>" title "</title>") ? "" : "has another title")
	if (bytes >= 0) metric("page " path, 20 + int(bytes / 1000))
}

function call(kind, path, what) {
	if (!(what in status)) result(kind " " what, "is unknown, called by " path)
	else result(kind " " what, status[what] < 400 ? "" : "answers " status[what])
	if (what in took) metric(kind " " what, took[what])
}

function flow(name, steps,   i, ms, bytes, broken) {
	for (i = 1; i <= LEN[steps]; i++) {
		bytes = weigh(IN[steps "." i])
		if (bytes < 0) broken = "stops at " IN[steps "." i]
		else ms += 20 + int(bytes / 1000)
	}
	result("flow " name, broken)
	metric("flow " name, ms / LEN[steps])
}

# weigh returns the bytes of a page with its images, and sets content; -1 if it
# is not there.
function weigh(path,   line, bytes, lines) {
	content = ""
	while ((getline line < (site "/" path)) > 0) {
		lines++
		content = content line "\n"
		if (match(line, /data-bytes="[0-9]*/)) bytes += substr(line, RSTART + 12, RLENGTH - 12)
	}
	close(site "/" path)
	return lines ? bytes + length(content) : -1
}

function result(what, why) {
	publish("load_result", "{\"what\": " quote(what) ", \"ok\": " (why == "" ? "true" : "false") ", \"why\": " quote(why) "}")
}

function metric(what, ms) { publish("perf_metric", "{\"what\": " quote(what) ", \"ms\": " int(ms) "}") }
