# Recon walks the links of a section and publishes each page, each API that a
# page calls, and at last the section's map.
END {
	if (FAILED) exit 1
	input()
	for (e = 1; e <= LEN["events"]; e++) crawl(IN["events." e ".data.start"])
	answer()
}

function crawl(start,   dir, page, n, i, pages) {
	dir = start
	sub(/[^\/]*$/, "", dir)
	split("", queue)
	split("", seen)
	queue[n = 1] = start
	seen[start] = 1
	for (i = 1; i <= n; i++) {
		page = queue[i]
		pages = pages (i > 1 ? ", " : "") quote(page)
		read(page)
		for (l = 1; l <= links; l++) if (!(dir link[l] in seen)) {
			seen[dir link[l]] = 1
			queue[++n] = dir link[l]
		}
		publish("page_discovered", "{\"path\": " quote(page) ", \"title\": " quote(title) ", \"form\": " quote(form) "}")
		for (a = 1; a <= apis; a++) publish("api_found", "{\"call\": " quote(api[a]) ", \"page\": " quote(page) "}")
	}
	publish("sitemap_built", "{\"section\": " quote(dir) ", \"pages\": [" pages "]}")
}

# read finds what a page holds. A page that is not there holds nothing.
function read(page,   line) {
	links = apis = 0
	title = form = ""
	while ((getline line < (site "/" page)) > 0) {
		if (match(line, /<title>[^<]*/)) title = substr(line, RSTART + 7, RLENGTH - 7)
		if (match(line, /href="[^":]*/)) link[++links] = substr(line, RSTART + 6, RLENGTH - 6)
		if (match(line, /data-api="[^"]*/)) api[++apis] = substr(line, RSTART + 10, RLENGTH - 10)
		if (match(line, /<form action="[^"]*/)) form = substr(line, RSTART + 14, RLENGTH - 14)
	}
	close(site "/" page)
}
