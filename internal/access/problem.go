package access

import (
	"strings"

	"github.com/agentsched/agentsched/api"
)

// The names of the problems.
const (
	unauthenticated  = "unauthenticated"
	forbidden        = "forbidden"
	wrongHost        = "wrong_host"
	crossSite        = "cross_site"
	keyRequired      = "key_required"
	runMayNotAsk     = "run_may_not_ask"
	rateLimited      = "rate_limited"
	unavailable      = "unavailable"
	methodNotAllowed = "method_not_allowed"
	badCaller        = "bad_caller"
	notFound         = "not_found"
)

// problem returns the body of a refusal. Its title is the name in words.
func problem(name string, status int, detail string) api.Problem {
	title := strings.ToUpper(name[:1]) + strings.ReplaceAll(name[1:], "_", " ")
	return api.Problem{Type: api.ProblemType + name, Title: title, Status: status, Detail: detail}
}
