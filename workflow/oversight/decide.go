package oversight

import (
	"fmt"
	"strings"
	"time"

	"github.com/agentsched/agentsched/job"
)

// Follow is what follows a rejection: another attempt that is told Feedback, or
// with a DeadLetter the end of the job.
type Follow struct {
	Retry      bool
	Feedback   string
	DeadLetter string
}

// Answer says what follows when work is rejected with a comment. rejections is how
// often the job's work was rejected before, maxRetries how often it may be done
// again after a rejection: with 2, the third one is the end.
func Answer(rejections, maxRetries int, comment string) Follow {
	comment = strings.TrimSpace(comment)
	if rejections < maxRetries {
		if comment == "" {
			comment = "a person has rejected the work and gave no reason"
		}
		return Follow{Retry: true, Feedback: comment}
	}
	said := "without a reason"
	if comment != "" {
		said = brief(comment)
	}
	return Follow{DeadLetter: fmt.Sprintf("%s: %s; rejected %s, max_retries is %d", job.HumanRejected, said, count(rejections+1, "time", "times"), maxRetries)}
}

// The answers that a timeout may stand for; "" is Reject.
const (
	Approve = "approve"
	Reject  = "reject"
)

// Until returns when a question that was asked then is answered by its default;
// nil if it waits for ever.
func Until(asked time.Time, timeout time.Duration) *time.Time {
	if timeout <= 0 {
		return nil
	}
	at := asked.Add(timeout)
	return &at
}
