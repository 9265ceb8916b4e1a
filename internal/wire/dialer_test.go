package wire

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// answering serves one fixed refusal on a host, and counts the requests.
func answering(ln *listener, status int, leader string) (stop func(), asked *atomic.Int32) {
	asked = new(atomic.Int32)
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if leader != "" {
			w.Header().Set(HeaderLeader, leader)
			w.Header().Set("Location", "http://elsewhere/")
		}
		http.Error(w, "standing by", status)
	})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		srv.Serve(ln) //nolint:errcheck // closed by stop
	}()
	return func() { srv.Close(); <-done }, asked
}

// TestAddresses: they are tried in turn, a standby sends to the leader, and the one that worked is tried first afterwards.
func TestAddresses(t *testing.T) {
	for _, status := range []int{http.StatusServiceUnavailable, http.StatusTemporaryRedirect} {
		synctest.Test(t, func(t *testing.T) {
			var net network
			stop, asked := answering(net.listen("standby"), status, "http://leader")
			defer stop()
			h := serve(t, net.listen("leader"), AcceptConfig{})
			defer h.stop()
			n := dial(t, DialConfig{DialContext: net.dial}, "http://nowhere", "http://standby", "http://other")
			defer n.stop()
			if e := n.await(Renewed); e.Address != "http://leader" {
				t.Fatalf("connected to %s", e.Address)
			}
			if asked.Load() != 1 {
				t.Fatalf("the standby was asked %d times", asked.Load())
			}
			net.cut()
			n.await(Resumed)
			if asked.Load() != 1 {
				t.Errorf("the standby was asked %d times; the leader was to be asked first", asked.Load())
			}
		})
	}
}

// TestRefused: what nobody can mean is not followed, and each failure says what was tried and why it failed.
func TestRefused(t *testing.T) {
	for name, c := range map[string]struct {
		status       int
		leader, want string
	}{
		"plain":    {http.StatusForbidden, "", `dial http://a: the answer is 403 Forbidden: "standing by"`},
		"no 503":   {http.StatusForbidden, "http://b", "the answer is 403 Forbidden"},
		"redirect": {http.StatusFound, "", "the answer is 302 Found"},
		"itself":   {http.StatusServiceUnavailable, "http://a", "Agentsched-Leader: http://a names itself"},
		"address":  {http.StatusServiceUnavailable, "leader:80", `Agentsched-Leader: "leader:80" must be like https://host:port`},
		"user":     {http.StatusServiceUnavailable, "http://u:p@b", "must be like https://host:port"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var net network
				stop, _ := answering(net.listen("a"), c.status, c.leader)
				defer stop()
				n := dial(t, DialConfig{DialContext: net.dial}, "http://a")
				defer n.stop()
				e := n.await(Failed)
				if !strings.Contains(e.Err.Error(), c.want) || e.Link != nil || e.Retry > 2*time.Second {
					t.Errorf("%v\nwant %s", e.Err, c.want)
				}
			})
		})
	}
}

// TestLeaderOnce: two standbys that name each other are asked twice in a round, and not for ever.
func TestLeaderOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var net network
		stopA, a := answering(net.listen("a"), http.StatusServiceUnavailable, "http://b")
		defer stopA()
		stopB, b := answering(net.listen("b"), http.StatusServiceUnavailable, "http://a")
		defer stopB()
		n := dial(t, DialConfig{DialContext: net.dial}, "http://a")
		defer n.stop()
		n.await(Failed)
		if a.Load() != 1 || b.Load() != 1 {
			t.Errorf("asked %d and %d times", a.Load(), b.Load())
		}
	})
}

// TestNoDowngrade: from https nobody is sent to http, where the token could be read.
func TestNoDowngrade(t *testing.T) {
	https, err := parseAddress("https://a")
	if err != nil {
		t.Fatal(err)
	}
	answer := &http.Response{StatusCode: http.StatusServiceUnavailable, Header: http.Header{HeaderLeader: {"http://b"}}}
	if leader, err := refusal(https, answer, errors.New("no upgrade")); leader != nil || !strings.Contains(err.Error(), "is not https") {
		t.Errorf("%v, %v", leader, err)
	}
}

// TestToken: it is asked for each request, and one that cannot be read is tried again.
func TestToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var net network
		var seen []string
		a, err := NewAcceptor(AcceptConfig{})
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close("test")
		srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			seen = append(seen, r.URL.Path+" "+r.Header.Get("Authorization"))
			a.Accept(w, r, "n") //nolint:errcheck // seen by the node
		})}
		done := make(chan struct{})
		go func() { defer close(done); srv.Serve(net.listen("a")) }() //nolint:errcheck // closed below
		defer func() { srv.Close(); <-done }()
		tokens := []string{"", "one", "two"}
		n := dial(t, DialConfig{DialContext: net.dial, Path: "v1/link", Token: func() (string, error) {
			token := tokens[0]
			tokens = tokens[1:]
			if token == "" {
				return "", errors.New("no such file")
			}
			return token, nil
		}}, "http://a/base")
		defer n.stop()
		if e := n.await(Failed); !strings.Contains(e.Err.Error(), "read the token: no such file") {
			t.Errorf("%v", e.Err)
		}
		n.await(Renewed)
		net.cut()
		n.await(Resumed)
		if got := strings.Join(seen, ", "); got != "/base/v1/link Bearer one, /base/v1/link Bearer two" {
			t.Errorf("asked: %s", got)
		}
	})
}

// TestHandshakeTimeout: a host that takes the connection and says nothing is given up.
func TestHandshakeTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var net network
		ln := net.listen("a")
		n := dial(t, DialConfig{DialContext: net.dial}, "http://a")
		defer n.stop()
		conn, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		began := time.Now()
		go func() { // takes the request
			for b := make([]byte, 1024); ; {
				if _, err := conn.Read(b); err != nil {
					return
				}
			}
		}()
		if e := n.await(Failed); !strings.Contains(e.Err.Error(), "no answer within 10s") || time.Since(began) != 10*time.Second {
			t.Errorf("after %v: %v", time.Since(began), e.Err)
		}
	})
}

func TestSettings(t *testing.T) {
	addresses, err := ParseAddresses("https://a:1, http://b/x")
	if err != nil || len(addresses) != 2 || addresses[1].Path != "/x" {
		t.Fatalf("%v, %v", addresses, err)
	}
	for _, bad := range []string{"", "a", "https://a,", "ftp://a", "https://", "https://a?x=1"} {
		if _, err := ParseAddresses(bad); err == nil {
			t.Errorf("ParseAddresses(%q) takes it", bad)
		}
	}
	for want, cfg := range map[string]DialConfig{
		"there is no address":                      {Channels: 1},
		"channels is 0; it must be 1 to 256":       {Addresses: addresses},
		"channels is 257":                          {Addresses: addresses, Channels: 257},
		"resend is 5 bytes; it must be at least":   {Addresses: addresses, Channels: 1, Limits: Limits{Resend: 5}},
		"silence is 6s; it must be at least twice": {Addresses: addresses, Channels: 1, Limits: Limits{Silence: 6 * time.Second}},
		"they must grow":                           {Addresses: addresses, Channels: 1, FirstRetry: time.Hour},
	} {
		if _, err := NewDialer(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %s", err, want)
		}
	}
	if _, err := NewAcceptor(AcceptConfig{Keep: -1}); err == nil {
		t.Error("a negative time is taken")
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("over"))
	d, err := NewDialer(DialConfig{Addresses: addresses, Channels: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Run(ctx); err == nil || err.Error() != "over" {
		t.Errorf("Run without time: %v", err)
	}
}
