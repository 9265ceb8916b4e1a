package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"sync"
	"time"

	"github.com/agentsched/agentsched/internal/statedir"
)

// Cordon says that a node takes no new jobs because an operator wants it so.
type Cordon struct {
	Why   string    `json:"why,omitempty"`
	By    string    `json:"by,omitempty"` // who asked for it
	Since time.Time `json:"since"`
}

// Cordons are the nodes that take no new jobs, in a document that outlasts the scheduler: whoever
// leads next keeps them. They are safe for concurrent use.
type Cordons struct {
	writing sync.Mutex // held while the document is written, and list is about to be replaced
	kept    *statedir.SoleWriter

	mu   sync.Mutex        // guards what follows
	list map[string]Cordon // never changed, but replaced
}

// LoadCordons reads the document statedir.NodesFile; without one no node is cordoned.
func LoadCordons(ctx context.Context, docs statedir.Documents) (*Cordons, error) {
	c := &Cordons{kept: statedir.NewSoleWriter(docs, statedir.NodesFile)}
	text, err := c.kept.Read(ctx)
	if err != nil {
		return nil, fmt.Errorf("read which nodes are cordoned: %w", err)
	}
	var doc cordonsDocument
	if text != nil {
		if err := json.Unmarshal(text, &doc); err != nil {
			return nil, fmt.Errorf("read which nodes are cordoned: %s: %w; move the file away to uncordon all of them", c.kept.Where(), err)
		}
	}
	if c.list = doc.Cordoned; c.list == nil {
		c.list = map[string]Cordon{}
	}
	return c, nil
}

// cordonsDocument is the document, in JSON.
type cordonsDocument struct {
	Cordoned map[string]Cordon `json:"cordoned"` // by name of the node
}

// all returns the cordons by name.
func (c *Cordons) all() map[string]Cordon {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.list
}

// change sets the cordon of a node; nil removes it. It is durable then, or the error says why nothing
// has changed.
func (c *Cordons) change(ctx context.Context, name string, to *Cordon) error {
	if c == nil {
		return errors.New("cordons are not kept here")
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	now := c.all()
	next := maps.Clone(now)
	if to != nil {
		next[name] = *to
	} else if delete(next, name); len(next) == len(now) {
		return nil
	}
	text, err := json.MarshalIndent(cordonsDocument{next}, "", "  ")
	if err == nil {
		err = c.kept.Write(ctx, append(text, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write which nodes are cordoned: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = next
	return nil
}

// nodeName is what tokens, and so nodes, are called.
var nodeName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$`)

// ErrName: no node can have that name.
var ErrName = errors.New("the name of a node is that of its token: 1 to 64 letters, digits and . _ @ -, a letter or digit first")

// Cordon has a node take no new jobs until Uncordon, whoever leads. What runs there goes on. One that is not there
// is cordoned when it comes.
func (n *Nodes) Cordon(ctx context.Context, name string, c Cordon) error {
	switch {
	case !nodeName.MatchString(name):
		return fmt.Errorf("%.80q: %w", name, ErrName)
	case len(c.Why) > maxText:
		return fmt.Errorf("why has %d bytes; at most %d", len(c.Why), maxText)
	}
	if err := n.cfg.Cordons.change(ctx, name, &c); err != nil {
		return err
	}
	n.Close(name, true)
	return nil
}

// Uncordon has a node take jobs again. The error wraps ErrUnknown if there is neither that node nor a cordon of it.
func (n *Nodes) Uncordon(ctx context.Context, name string) error {
	if !n.knows(name) {
		return fmt.Errorf("%w: %s", ErrUnknown, name)
	}
	if err := n.cfg.Cordons.change(ctx, name, nil); err != nil {
		return err
	}
	n.Close(name, false)
	return nil
}

// knows reports whether a node has come, or is to be closed when it comes.
func (n *Nodes) knows(name string) bool {
	n.mu.Lock()
	r := n.nodes[name]
	n.mu.Unlock()
	return r != nil && r.known()
}
