package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const patience = 20 * time.Second

// answers connects and reads the canary.
func (w *world) answers(network, address string) error {
	c, err := net.DialTimeout(network, address, patience)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := fmt.Fprint(c, "GET / HTTP/1.0\r\n\r\n"); err != nil {
		return err
	}
	data, err := io.ReadAll(io.LimitReader(c, 4096))
	if !bytes.Contains(data, []byte(w.Canary)) {
		if err == nil {
			err = errNothing
		}
		return err
	}
	return nil
}

// asked sends a datagram and reads the canary.
func (w *world) asked(address string, question []byte) error {
	c, err := net.Dial("udp", address)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := c.Write(question); err != nil {
		return err
	}
	buf := make([]byte, 4096)
	n, err := c.Read(buf)
	if err != nil {
		return err
	}
	if !bytes.Contains(buf[:n], []byte(w.Canary)) {
		return errNothing
	}
	return nil
}

// serve is another run: it answers at an address until it is ended.
func serve(address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	return http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, os.Getenv("SERVED")) }))
}

func socketActs() map[string]func(*world) error {
	return map[string]func(*world) error{
		"unix-docker":   func(w *world) error { return w.answers("unix", w.Docker) },
		"unix-bus":      func(w *world) error { return w.answers("unix", w.Bus) },
		"unix-agent":    func(w *world) error { return w.answers("unix", w.Agent) },
		"unix-abstract": func(w *world) error { return w.answers("unix", w.Abstract) },
		"unix-scheduler": func(w *world) error {
			c, err := net.Dial("unix", w.State+"/scheduler.sock")
			if err != nil {
				return err
			}
			return c.Close()
		},
		"unix-datagram": func(w *world) error { return sendTo(unix.SOCK_DGRAM, w.Datagram) },
		"unix-pair": func(w *world) error {
			pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer unix.Close(pair[0])
			defer unix.Close(pair[1])
			return unix.Sendto(pair[0], []byte("hello"), 0, &unix.SockaddrUnix{Name: w.Datagram})
		},
		"unix-environment": func(*world) error {
			for _, name := range []string{"SSH_AUTH_SOCK", "DBUS_SESSION_BUS_ADDRESS", "DOCKER_HOST"} {
				if os.Getenv(name) != "" {
					return nil
				}
			}
			return errNothing
		},
		"own-pair": func(*world) error {
			pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			_ = unix.Close(pair[0])
			return unix.Close(pair[1])
		},
	}
}

func sendTo(kind int, path string) error {
	fd, err := unix.Socket(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Sendto(fd, []byte("hello"), 0, &unix.SockaddrUnix{Name: path})
}

// opened opens a socket and does nothing with it.
func opened(family, kind, protocol int) error {
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

func networkActs() map[string]func(*world) error {
	return map[string]func(*world) error{
		"tcp-loopback":  func(w *world) error { return w.answers("tcp", w.Loopback) },
		"tcp-loopback6": func(w *world) error { return w.answers("tcp", w.Loopback6) },
		"tcp-unspecified": func(w *world) error {
			_, port, _ := net.SplitHostPort(w.Loopback)
			return w.answers("tcp", "0.0.0.0:"+port)
		},
		"tcp-mapped":    mapped,
		"tcp-elsewhere": func(w *world) error { return w.answers("tcp", w.Elsewhere) },
		"tcp-metadata":  func(w *world) error { return w.answers("tcp", w.Meta) },
		"tcp-sibling":   func(w *world) error { return w.answers("tcp", w.Served) },
		"tcp-fast-open": fastOpen,
		"udp-send":      func(w *world) error { return w.asked(w.UDP, []byte("hello")) },
		"udp-names":     func(w *world) error { return w.asked(w.Resolver, question("secret.tunnel.test")) },
		"socket-raw":    func(*world) error { return opened(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP) },
		"socket-raw6":   func(*world) error { return opened(unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_ICMPV6) },
		"socket-packet": func(*world) error { return opened(unix.AF_PACKET, unix.SOCK_RAW, 0x300) },
		"socket-netlink": func(*world) error {
			return opened(unix.AF_NETLINK, unix.SOCK_DGRAM, unix.NETLINK_KOBJECT_UEVENT)
		},
		"socket-vsock":     func(*world) error { return opened(unix.AF_VSOCK, unix.SOCK_STREAM, 0) },
		"socket-algorithm": func(*world) error { return opened(unix.AF_ALG, unix.SOCK_SEQPACKET, 0) },
		"socket-routes": func(*world) error { // changes nothing: it names no device
			fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			message := [32]byte{0: 32, 4: unix.RTM_DELLINK, 6: unix.NLM_F_REQUEST | unix.NLM_F_ACK}
			if err := unix.Sendto(fd, message[:], 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
				return err
			}
			var buf [1024]byte
			n, _, err := unix.Recvfrom(fd, buf[:], 0)
			if err != nil || n < 20 {
				return err
			}
			return reached(unix.Errno(-*(*int32)(unsafe.Pointer(&buf[16]))))
		},
		"own-serve": func(w *world) error {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				return err
			}
			defer l.Close()
			go func() {
				_ = http.Serve(l, http.HandlerFunc(func(to http.ResponseWriter, _ *http.Request) { fmt.Fprint(to, w.Canary) }))
			}()
			return w.answers("tcp", l.Addr().String())
		},
		"own-interfaces": func(*world) error { _, err := net.Interfaces(); return err },
	}
}

// mapped connects to an IPv4 address by a socket of IPv6.
func mapped(w *world) error {
	host, port, _ := net.SplitHostPort(w.Loopback)
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), "socket")
	defer f.Close()
	to := &unix.SockaddrInet6{Addr: [16]byte(net.ParseIP(host).To16())}
	if _, err := fmt.Sscan(port, &to.Port); err != nil {
		return err
	}
	if err := unix.Connect(fd, to); err != nil {
		return err
	}
	if _, err := fmt.Fprint(f, "GET / HTTP/1.0\r\n\r\n"); err != nil {
		return err
	}
	data, err := io.ReadAll(f)
	if err == nil && !bytes.Contains(data, []byte(w.Canary)) {
		err = errNothing
	}
	return err
}

// fastOpen connects by sending.
func fastOpen(w *world) error {
	host, port, _ := net.SplitHostPort(w.Loopback)
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), "socket")
	defer f.Close()
	to := &unix.SockaddrInet4{Addr: [4]byte(net.ParseIP(host).To4())}
	if _, err := fmt.Sscan(port, &to.Port); err != nil {
		return err
	}
	return unix.Sendto(fd, []byte("hello"), unix.MSG_FASTOPEN, to)
}
