package server

import (
	"encoding/json"
	"sync"

	"github.com/agentsched/agentsched/api"
)

// maxEncoded is how many updates are remembered as JSON.
const maxEncoded = 256

// encoder turns updates into JSON once, however many listen: they are given the
// same update at about the same time, so that the latest ones do. The zero value
// is ready.
type encoder struct {
	mu    sync.Mutex
	texts map[string][]byte  // by Update.ID
	ids   [maxEncoded]string // of texts, in the order in which they came, around and around
	next  int
}

// update returns u as JSON, which is shared and not to be changed.
func (c *encoder) update(u *api.Update) ([]byte, error) {
	if u.ID == "" || u.Kind == api.UpdateGap { // a gap has the id of another
		return json.Marshal(u)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if text, ok := c.texts[u.ID]; ok {
		return text, nil
	}
	text, err := json.Marshal(u)
	if err != nil {
		return nil, err
	}
	if c.texts == nil {
		c.texts = map[string][]byte{}
	}
	delete(c.texts, c.ids[c.next])
	c.ids[c.next], c.texts[u.ID] = u.ID, text
	c.next = (c.next + 1) % len(c.ids)
	return text, nil
}
