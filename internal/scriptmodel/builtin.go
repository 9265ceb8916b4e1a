package scriptmodel

import "time"

// builtins are the scripts that any server plays, by model name.
func builtins() map[string]Script {
	const (
		long    = 300 * time.Second
		backoff = 2 * time.Second
	)
	limited, failing := Status(429, backoff), Status(500, 0)
	return map[string]Script{
		"scripted-answer":    answer(),
		"scripted-edit":      Play(Edit("scripted.txt", "written by a script\n"), Say("I wrote scripted.txt.")),
		"scripted-command":   Play(Run("echo from the script; git status --short"), Say("The command ran.")),
		"scripted-sleep":     Play(Sleep(long), Say("I slept.")).Resuming(Say("I was interrupted and have resumed.")),
		"scripted-daemonise": Play(Daemonise(long), Say("It runs in the background.")),
		"scripted-5mb":       Play(Print(5_000_000), Say("That was much.")),
		"scripted-401":       Always(Status(401, 0)),
		"scripted-429":       Always(limited),
		"scripted-429-once":  answer().FailingFirst(1, limited),
		"scripted-500":       Always(failing),
		"scripted-500-once":  answer().FailingFirst(1, failing),
		"scripted-hang":      Always(Hang()),
		"scripted-broken":    Always(BrokenSSE()),
		"scripted-malformed": Always(Malformed()),
		"scripted-slow":      Play(Slow("This answer comes in many small pieces, so that a stream can be watched.", 10, time.Second)),
		"scripted-expensive": Play(Say("That cost you.").Costing(Usage{Input: 6_000_000, Output: 2_000_000})),
		"scripted-json":      Play(Structured()),
	}
}

func answer() Script { return Play(Say("The answer is 42.")) }
