package workflow

import "github.com/agentsched/agentsched/internal/fields"

// didYouMean returns "; did you mean X?" or "".
func didYouMean(word string, known []string) string {
	if near := fields.Nearest(word, known); near != "" {
		return "; did you mean " + near + "?"
	}
	return ""
}
