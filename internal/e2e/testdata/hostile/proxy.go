package main

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// The job of these acts may reach allowed.test, inward.test, meta.test and rebind.test, port 8080 each. A run that nothing
// holds has no proxy, and reaches all hosts by itself.

// question is a packet that asks for the address of a name.
func question(name string) []byte {
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: 1, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name + "."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}},
	}
	packet, _ := m.Pack()
	return packet
}

// got looks for the canary in an answer.
func (w *world) got(resp *http.Response, err error) (string, error) {
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if !bytes.Contains(data, []byte(w.Canary)) {
		if resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("%s: %s", resp.Status, strings.TrimSpace(string(data)))
		} else if err == nil {
			err = errNothing
		}
		return "", err
	}
	return string(data), nil
}

// get asks for a URL as a program does that obeys the environment.
func (w *world) get(address string) (string, error) {
	client := &http.Client{Timeout: patience, Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true}}
	return w.got(client.Get(address))
}

// proxy connects to the run's proxy, or if there is none, to the target.
func proxy(target string) (c net.Conn, credentials string, err error) {
	to := target
	if text := os.Getenv("HTTP_PROXY"); text != "" {
		u, err := url.Parse(text)
		if err != nil {
			return nil, "", err
		}
		to = u.Host
		if u.User != nil {
			password, _ := u.User.Password()
			credentials = "Proxy-Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(u.User.Username()+":"+password)) + "\r\n"
		}
	}
	c, err = net.DialTimeout("tcp", to, patience)
	if err == nil {
		_ = c.SetDeadline(time.Now().Add(patience))
	}
	return c, credentials, err
}

// tunnel opens one to a host and port, and asks within it.
func (w *world) tunnel(target, host string) error {
	c, credentials, err := proxy(target)
	if err != nil {
		return err
	}
	defer c.Close()
	from := bufio.NewReader(c)
	if os.Getenv("HTTP_PROXY") != "" {
		fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n%s\r\n", target, target, credentials)
		resp, err := http.ReadResponse(from, &http.Request{Method: http.MethodConnect})
		if err != nil {
			return err
		}
		if resp.StatusCode != http.StatusOK {
			_, err := w.got(resp, nil)
			return err
		}
	}
	fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", host)
	return w.says(from, host)
}

// says reads an answer that must be to this host.
func (w *world) says(from *bufio.Reader, host string) error {
	resp, err := http.ReadResponse(from, nil)
	text, err := w.got(resp, err)
	if err == nil && !strings.Contains(text, "for "+host) {
		return errNothing
	}
	return err
}

// plain sends whole requests for pages of hosts, one after the other on one connection, and reads the last one's answer.
func (w *world) plain(requests [][2]string) error {
	c, credentials, err := proxy(requests[0][0])
	if err != nil {
		return err
	}
	defer c.Close()
	from := bufio.NewReader(c)
	for i, r := range requests {
		path := "/"
		if os.Getenv("HTTP_PROXY") != "" {
			path = "http://" + r[0] + "/"
		}
		fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\n%s\r\n", path, r[1], credentials)
		if i == len(requests)-1 {
			return w.says(from, r[1])
		}
		resp, err := http.ReadResponse(from, nil)
		if _, err = w.got(resp, err); err != nil {
			return err
		}
	}
	return nil
}

func proxyActs() map[string]func(*world) error {
	gets := func(address string) func(*world) error {
		return func(w *world) error { _, err := w.get(address); return err }
	}
	tunnels := func(target string) func(*world) error {
		return func(w *world) error { return w.tunnel(target, target) }
	}
	return map[string]func(*world) error{
		"proxy-host":           gets("http://allowed.test:8080/"),
		"proxy-tunnel":         tunnels("allowed.test:8080"),
		"proxy-refused":        gets("http://refused.test:8080/"),
		"proxy-refused-below":  gets("http://x.allowed.test:8080/"),
		"proxy-tunnel-refused": tunnels("refused.test:8080"),
		"proxy-port":           gets("http://allowed.test:8081/"),
		"proxy-tunnel-port":    tunnels("allowed.test:8081"),
		"proxy-loopback":       func(w *world) error { return w.plain([][2]string{{w.Loopback, w.Loopback}}) },
		"proxy-mapped": func(w *world) error {
			_, port, _ := net.SplitHostPort(w.Loopback)
			return w.tunnel("[::ffff:127.0.0.1]:"+port, "[::ffff:127.0.0.1]:"+port)
		},
		"proxy-metadata":        gets("http://169.254.169.254/latest/meta-data/"),
		"proxy-tunnel-metadata": tunnels("169.254.169.254:80"),
		"proxy-metadata-name":   gets("http://meta.test:8080/"),
		"proxy-inward":          gets("http://inward.test:8080/"),
		"proxy-redirect":        gets("http://allowed.test:8080/?redirect=http://169.254.169.254/"),
		"proxy-rebind": func(w *world) error {
			err := errNothing
			for range 3 {
				var text string
				if text, err = w.get("http://rebind.test:8080/"); err == nil && strings.Contains(text, "at 127.0.0.1") {
					return nil
				}
			}
			if err == nil {
				err = errNothing
			}
			return err
		},
		"proxy-names":  gets("http://what-the-run-has-found.leak.test:8080/"),
		"proxy-header": func(w *world) error { return w.plain([][2]string{{"allowed.test:8080", "refused.test:8080"}}) },
		"proxy-pipelined": func(w *world) error {
			return w.plain([][2]string{{"allowed.test:8080", "allowed.test:8080"}, {"refused.test:8080", "refused.test:8080"}})
		},
		"proxy-fronting": func(w *world) error { return w.tunnel("allowed.test:8080", "refused.test:8080") },
	}
}
