# The apprentice stands in for a coding agent: it reads a task, changes files and
# answers. Like one it forgets things, and does better when it is told what was
# wrong. The lines that it reads and prints are those of docs/worker-protocol.md.
read -r task

answer() { printf '{"type":"result","status":"completed","answer":"%s"}\n' "$1"; }

# text is what a line says in its field text.
text() { printf '%s\n' "$line" | sed -n 's/.*"text":"\([^"]*\)".*/\1/p'; }

# ask asks a person something, and keeps what it is told until there is an answer.
ask() {
	printf '{"type":"question","id":"%s","kind":"words","text":"%s"}\n' "$1" "$2"
	told=
	while read -r line; do
		case $line in
		'{"type":"message"'*)
			told=$(text)
			printf '%s\n' "$line" | sed 's/.*"id":"\([^"]*\)".*/{"type":"settle","message":"\1","state":"folded"}/' ;;
		'{"type":"answer"'*) return ;;
		esac
	done
}

hours() { for day in "$@"; do echo "$day 7-18"; done > hours.txt; }

case $task in
*hours.txt*'does not say Sunday'*)
	hours Monday Tuesday Wednesday Thursday Friday Saturday Sunday
	answer 'I had forgotten Sunday.' ;;
*hours.txt*)
	hours Monday Tuesday Wednesday Thursday Friday Saturday
	answer 'The opening hours are in hours.txt.' ;;
*poster.txt*'Sunday'*)
	printf 'Spring market\nNew: bagels\nSundays too!\n' > poster.txt
	answer 'Sundays are on the poster now.' ;;
*poster.txt*)
	printf 'Spring market\nNew: bagels\n' > poster.txt
	answer 'The poster is in poster.txt.' ;;
*cake.txt*almonds*)
	sed 's/walnuts/almonds/' cake.txt > new.txt && mv new.txt cake.txt
	answer 'It has almonds now.' ;;
*cake.txt*)
	echo '{"type":"hello","protocol":1,"converses":["messages","questions"]}'
	ask price 'What does the cake cost?'
	printf 'Cake: %s\n%s\n' "$(text)" "$told" > cake.txt
	answer 'The cake is in cake.txt.' ;;
*)
	answer 'I have read it.' ;;
esac
