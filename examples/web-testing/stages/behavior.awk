# Behavior makes a test of each page, form and API call, and a flow of each map.
END {
	if (FAILED) exit 1
	input()
	for (e = 1; e <= LEN["events"]; e++) {
		at = "events." e
		type = IN[at ".type"]
		if (type == "page_discovered") {
			test("page", IN[at ".data.path"], IN[at ".data.title"])
			if (IN[at ".data.form"] != "") test("form", IN[at ".data.path"], "POST " IN[at ".data.form"])
		} else if (type == "api_found") {
			test("api", IN[at ".data.page"], IN[at ".data.call"])
		} else {
			steps = ""
			for (p = 1; p <= LEN[at ".data.pages"]; p++) steps = steps (p > 1 ? ", " : "") quote(IN[at ".data.pages." p])
			publish("flow_mapped", "{\"name\": " quote(IN[at ".data.section"]) ", \"steps\": [" steps "]}")
		}
	}
	answer()
}

function test(kind, page, expect) {
	publish("test_generated", "{\"kind\": " quote(kind) ", \"page\": " quote(page) ", \"expect\": " quote(expect) "}")
}
