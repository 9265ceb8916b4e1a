package node

import (
	"context"
	"fmt"
	"sync"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/internal/wire"
	"github.com/agentsched/agentsched/ipc"
)

// conversations are those of package ipc over the channels of a link. They end with the link, and it with each of them.
type conversations struct {
	link  *wire.Link
	name  string // who is at the other end
	log   zerolog.Logger
	peers map[int]*ipc.Peer // by channel
}

func newConversations(link *wire.Link, name string, log zerolog.Logger) *conversations {
	return &conversations{link: link, name: name, log: log, peers: map[int]*ipc.Peer{}}
}

// open makes the conversation of a channel. A cut is nothing unusual, so that nobody counts as hung: silence is the link's to
// notice.
func (c *conversations) open(channel int, h ipc.Handler) *ipc.Peer {
	r, w := c.link.Channel(channel).Lines()
	p := ipc.NewPeer(r, w, ipc.Config{Name: c.name, Log: c.log, Handler: h})
	p.SetPatient(true)
	c.peers[channel] = p
	return p
}

// begin begins them, and returns a channel that is closed when all have ended.
func (c *conversations) begin() <-chan struct{} {
	ended := make(chan struct{})
	var running sync.WaitGroup
	for channel, p := range c.peers {
		running.Go(func() {
			err := p.Run(context.Background())
			c.link.Close(fmt.Sprintf("channel %d: %v", channel, err))
		})
	}
	go func() {
		defer close(ended)
		<-c.link.Done()
		for _, p := range c.peers {
			p.Stop(c.link.Err())
		}
		running.Wait()
	}()
	return ended
}

// linkContext ends with a link.
func linkContext(l *wire.Link) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(context.Background())
	stop := make(chan struct{})
	go func() {
		select {
		case <-l.Done():
			cancel(l.Err())
		case <-stop:
			cancel(nil)
		}
	}()
	return ctx, sync.OnceFunc(func() { close(stop) })
}
