package workspace

import (
	"errors"
	"path/filepath"
	"sync"
	"time"
)

// ResolveTime is how long a file system may take to answer.
const ResolveTime = 2 * time.Second

const (
	answerAge = 30 * time.Second // for how long an answer stands; then it is asked for again, and stands meanwhile
	maxKnown  = 10_000           // answers that are kept
	maxAsked  = 64               // questions that may wait for an answer
)

// errHangs: the file system has not answered within ResolveTime.
var errHangs = errors.New("its file system does not answer")

// Resolver knows the real paths of folders, without waiting for a file system: a mount
// that does not answer delays only requests for folders on it. It may be used by several
// goroutines at once. Make it with NewResolver.
type Resolver struct {
	resolve func(string) (string, error)
	changed func()

	mu    sync.Mutex // guards what follows
	known map[string]answer
	asked map[string]question
}

type answer struct {
	real string
	at   time.Time
}

type question struct {
	since time.Time
	done  chan struct{} // closed when there is an answer
}

// NewResolver returns a resolver that asks resolve, filepath.EvalSymlinks if that is nil.
// changed, if not nil, is called whenever Peek may say more than before.
func NewResolver(resolve func(string) (string, error), changed func()) *Resolver {
	if resolve == nil {
		resolve = filepath.EvalSymlinks
	}
	if changed == nil {
		changed = func() {}
	}
	return &Resolver{resolve: resolve, changed: changed, known: map[string]answer{}, asked: map[string]question{}}
}

// Peek returns the real path of a folder without waiting. It is not known at first,
// which Peek changes. A path that cannot be resolved, or not within ResolveTime,
// stands for itself.
func (r *Resolver) Peek(path string) (real string, known bool) {
	if path == "" {
		return "", true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	a, q := r.ask(path)
	switch {
	case a != nil:
		return a.real, true
	case q == nil || time.Since(q.since) >= ResolveTime:
		return filepath.Clean(path), true
	}
	return filepath.Clean(path), false
}

// Get waits for the real path, at most ResolveTime. The error is errHangs; the path
// stands for itself then.
func (r *Resolver) Get(path string) (real string, err error) {
	if path == "" {
		return "", nil
	}
	r.mu.Lock()
	a, q := r.ask(path)
	r.mu.Unlock()
	switch {
	case a != nil:
		return a.real, nil
	case q == nil:
		return filepath.Clean(path), errHangs
	}
	timer := time.NewTimer(max(ResolveTime-time.Since(q.since), 0))
	defer timer.Stop()
	select {
	case <-q.done:
	case <-timer.C:
		return filepath.Clean(path), errHangs
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if a, ok := r.known[path]; ok {
		return a.real, nil
	}
	return filepath.Clean(path), nil // it was forgotten at once, for others
}

// Know asks for the real paths of folders, all at once, and waits for the answers, at
// most ResolveTime. Paths may be repeated; of very many, the first are asked for.
func (r *Resolver) Know(paths []string) {
	asked := map[string]bool{}
	var all sync.WaitGroup
	for _, path := range paths {
		if asked[path] || len(asked) == maxAsked {
			continue
		}
		asked[path] = true
		all.Go(func() { _, _ = r.Get(path) }) // one that hangs is found so again where it is used
	}
	all.Wait()
}

// ask returns the answer there is, and sees to it that there will be one. Without
// an answer and a question, there are too many questions. Called with r.mu held.
func (r *Resolver) ask(path string) (*answer, *question) {
	q, asked := r.asked[path]
	a, known := r.known[path]
	if !asked && (!known || time.Since(a.at) >= answerAge) && len(r.asked) < maxAsked {
		q, asked = question{time.Now(), make(chan struct{})}, true
		r.asked[path] = q
		late := time.AfterFunc(ResolveTime, r.changed)
		go func() {
			real, err := r.resolve(path)
			late.Stop()
			if err != nil {
				real = filepath.Clean(path)
			}
			r.mu.Lock()
			if len(r.known) >= maxKnown {
				clear(r.known)
			}
			r.known[path] = answer{real, time.Now()}
			delete(r.asked, path)
			close(q.done)
			r.mu.Unlock()
			r.changed()
		}()
	}
	if known && !(asked && time.Since(q.since) >= ResolveTime) {
		return &a, nil
	}
	if asked {
		return nil, &q
	}
	return nil, nil
}
