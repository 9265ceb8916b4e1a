package job

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// DuplicatePolicy says what happens to a job whose key an unfinished job of
// the same tenant has already.
type DuplicatePolicy string

const (
	// RunEach: duplicates are not looked for. The policy of a job without a key.
	RunEach DuplicatePolicy = ""
	// Coalesce: it does not run, it gets the result of the unfinished one. The
	// policy of a job that has a key and names none.
	Coalesce DuplicatePolicy = "coalesce"
	// LatestWins: the unfinished ones are cancelled, and it starts once their
	// workers are gone.
	LatestWins DuplicatePolicy = "latest_wins"
	// Reject: it is not taken.
	Reject DuplicatePolicy = "reject"
	// Serialize: it starts once those before it have ended.
	Serialize DuplicatePolicy = "serialize"
)

// DuplicatePolicies lists every policy that has a name.
func DuplicatePolicies() []DuplicatePolicy {
	return []DuplicatePolicy{Coalesce, LatestWins, Reject, Serialize}
}

// Duplicates returns the policy of the job, defaults filled in, and the key
// that it acts on: the given one, else the derived one; "" with RunEach.
func (s *Spec) Duplicates() (policy DuplicatePolicy, key string) {
	switch {
	case s.OnDuplicate == RunEach && s.Key == "":
		return RunEach, ""
	case s.Key == "":
		return s.OnDuplicate, DeriveKey(s)
	case s.OnDuplicate == RunEach:
		return Coalesce, s.Key
	}
	return s.OnDuplicate, s.Key
}

// DeriveKey returns the key of a job that gives none: equal for jobs that ask
// for the same thing, whatever their name, tenant, class, priority, times,
// limits, fallbacks and trace.
//
// Of type LLM it is {provider}:{model}:{promptHash}:{toolStateHash}[:{turn}],
// e.g. "claude:sonnet:5d41402abc4b2a76:b9719d911017c592:turn-7", where the
// provider is the kind of the preferred worker, the prompt is instructions,
// system prompt and output schema, and the tool state is workspace,
// capabilities, allowed commands, variables and verify command.
//
// Of the other types it is {workerKind}:{workspaceHash}:{taskHash}:{inputsHash},
// where the workspace is path, isolation and base, or also repository or parcel, the task is type, model,
// instructions, system prompt, output schema and verify command, and the
// inputs are capabilities, allowed commands, variables (by their names), turn and
// payload. Contents of files are not read: the same words about the same folder
// are the same task.
//
// A hash is the first 16 hexadecimal digits of a SHA-256 over its parts, each
// with its length before it. Within a part that stands as it is, "%" and ":"
// are written %25 and %3A.
func DeriveKey(s *Spec) string {
	plain := strings.NewReplacer("%", "%25", ":", "%3A").Replace
	w := s.Workspace
	if s.Type == LLM {
		key := strings.Join([]string{
			plain(string(s.Worker)), plain(s.Model),
			digest(s.Instructions, s.SystemPrompt, string(s.Output)),
			digest(w.Path, string(w.Isolation), w.Base, set(s.Capabilities), set(s.AllowCommands), set(s.Env), s.Verify),
		}, ":")
		if s.Turn != "" {
			key += ":" + plain(s.Turn)
		}
		return key
	}
	inputs := []string{set(s.Capabilities), set(s.AllowCommands), set(s.Env), s.Turn}
	if len(s.Payload) > 0 {
		inputs = append(inputs, string(s.Payload))
	}
	return strings.Join([]string{
		plain(string(s.Worker)),
		digest(w.words()...),
		digest(string(s.Type), s.Model, s.Instructions, s.SystemPrompt, string(s.Output), s.Verify),
		digest(inputs...),
	}, ":")
}

// words are what tells a workspace from others.
func (w *Workspace) words() []string {
	all := []string{w.Path, string(w.Isolation), w.Base}
	switch {
	case w.Repo != "":
		return append(all, "repo", w.Repo)
	case w.Parcel != (Parcel{}):
		return append(all, "parcel", w.Parcel.Digest, w.Parcel.Sub)
	}
	return all
}

// digest returns the hash of parts. No two lists of parts are written alike.
func digest(parts ...string) string {
	sum := sha256.Sum256([]byte(framed(parts)))
	return hex.EncodeToString(sum[:8])
}

// set returns list as one part, in which its order and repetitions do not show.
func set[S ~string](list []S) string {
	list = slices.Clone(list)
	slices.Sort(list)
	return framed(slices.Compact(list))
}

func framed[S ~string](parts []S) string {
	var b strings.Builder
	for _, p := range parts {
		fmt.Fprintf(&b, "%d:%s,", len(p), p)
	}
	return b.String()
}
