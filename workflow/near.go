package workflow

import "github.com/agentsched/agentsched/internal/strictyaml"

// didYouMean returns "; did you mean X?" or "".
func didYouMean(word string, known []string) string {
	if near := strictyaml.Nearest(word, known); near != "" {
		return "; did you mean " + near + "?"
	}
	return ""
}
