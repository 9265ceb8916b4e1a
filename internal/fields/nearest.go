package fields

import "strings"

// Nearest returns the word of known that word is most likely a slip of; "" if
// none is near: at most a third of its letters may differ. Case and the choice
// of - or _ do not count.
func Nearest(word string, known []string) string {
	best, least := "", 1+len(plain(word))/3
	for _, k := range known {
		if d := distance(plain(word), plain(k)); d <= least && (best == "" || d < least) {
			best, least = k, d
		}
	}
	return best
}

func plain(s string) []rune {
	return []rune(strings.ToLower(strings.ReplaceAll(Clip(s), "-", "_")))
}

// distance is the number of letters to insert, delete or replace to get from
// a to b (Levenshtein).
func distance(a, b []rune) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i, x := range a {
		diagonal := row[0]
		row[0] = i + 1
		for j, y := range b {
			replaced := diagonal
			if x != y {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
