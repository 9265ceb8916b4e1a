package scheduler

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// Links are the links by which people without a login answer what waits for them, each for one question of an agent or for
// the work of one attempt. What a link's code opens is in the store, with a hash of the code:
//
//	links/ID  link  what it answers, and how long; ID is the beginning of the hash
//
// So a link works through a restart, and who reads the store has none.
type Links struct {
	store queue.Store
	log   zerolog.Logger
}

// Link is what a link answers.
type Link struct {
	Hash    string `json:"hash"` // SHA-256 of the code, in hexadecimal
	Job     job.ID `json:"job"`
	Attempt int    `json:"attempt"` // that had asked when the link was made
	// Number is that of a question of the job's agent; 0: the link answers for the work of the attempt.
	Number int `json:"number,omitempty"`
	// Told is who was told the link, such as "webhook alerts.example.com".
	Told    string    `json:"told"`
	Expires time.Time `json:"expires"`
}

// By is under which name an answer that comes by the link is recorded.
func (l *Link) By() string { return "link of " + l.Told }

const (
	linkSpaces = "links/"
	linkKey    = "link"
)

func linkSpace(hash string) string { return linkSpaces + hash[:16] }

func linkHash(code string) string {
	sum := sha256.Sum256([]byte(code))
	return hex.EncodeToString(sum[:])
}

// New stores a link that answers q for the time that it lasts, and returns its code, which is a secret of 128 bits or more. told
// is whom the code is for.
func (s *Links) New(ctx context.Context, q *Question, told string, lasts time.Duration) (code string, err error) {
	code = rand.Text()
	l := Link{Hash: linkHash(code), Job: q.Job, Attempt: q.Attempt, Number: q.Number, Told: told, Expires: now().Add(lasts)}
	value, err := json.Marshal(l)
	if err != nil {
		return "", fmt.Errorf("encode a link: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	if err := s.store.Apply(ctx, queue.Write{Record: queue.Record{Space: linkSpace(l.Hash), Key: linkKey, Value: value, At: now()}}); err != nil {
		return "", fmt.Errorf("store a link: %w", err)
	}
	return code, nil
}

// errNoLink says nothing of why a code opens nothing.
var errNoLink = fmt.Errorf("the link is unknown or over: %w", queue.ErrNotFound)

// Find returns what a code opens. The error wraps queue.ErrNotFound if that is nothing, or no more.
func (s *Links) Find(ctx context.Context, code string) (Link, error) {
	hash := linkHash(code)
	l, err := s.read(ctx, linkSpace(hash))
	switch {
	case errors.Is(err, queue.ErrNotFound):
		return Link{}, errNoLink
	case err != nil:
		return Link{}, err
	case subtle.ConstantTimeCompare([]byte(l.Hash), []byte(hash)) != 1, !now().Before(l.Expires):
		return Link{}, errNoLink
	}
	return l, nil
}

func (s *Links) read(ctx context.Context, space string) (l Link, err error) {
	r, err := s.store.Record(ctx, space, linkKey)
	if err == nil {
		err = json.Unmarshal(r.Value, &l)
	}
	if err != nil {
		return Link{}, fmt.Errorf("read a link: %w", err)
	}
	return l, nil
}

// run forgets links that are over, until ctx ends.
func (s *Links) run(ctx context.Context) error {
	for {
		if err := s.tidy(ctx); err != nil && ctx.Err() == nil {
			s.log.Error().Err(err).Msg("forget links that are over")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(tidyLinks):
		}
	}
}

// tidyLinks is how often links that are over are looked for.
const tidyLinks = time.Hour

// tidy forgets the links that are over.
func (s *Links) tidy(ctx context.Context) error {
	spaces, err := s.store.Spaces(ctx, linkSpaces)
	if err != nil {
		return err
	}
	for _, space := range spaces {
		l, err := s.read(ctx, space)
		if err == nil && !now().Before(l.Expires) {
			err = s.store.Apply(ctx, queue.Erase{Space: space, UpTo: linkKey})
		}
		if err != nil && !errors.Is(err, queue.ErrNotFound) {
			return err
		}
	}
	return nil
}
