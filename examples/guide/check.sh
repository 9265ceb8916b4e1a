# Is hours.txt fit for the shop's door?
for day in Monday Tuesday Wednesday Thursday Friday Saturday Sunday; do
	grep -q "^$day " hours.txt || { echo "hours.txt does not say $day"; wrong=1; }
done
exit ${wrong:-0}
