//go:build linux

package faults

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// netns is a network namespace. It has no name: the kernel removes it, with its
// interfaces, when its file is closed and its last process has ended.
type netns struct {
	file *os.File
	id   string // as /proc/PID/ns/net of its processes reads
}

// newNetns makes a namespace whose loopback interface is up.
func newNetns() (*netns, error) {
	n := &netns{}
	err := onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("make a network namespace: %w", err)
		}
		path := fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid())
		id, err := os.Readlink(path)
		if err != nil {
			return err
		}
		n.id = id
		n.file, err = os.Open(path)
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := n.command("ip", "link", "set", "lo", "up"); err != nil {
		return nil, errors.Join(err, n.close())
	}
	return n, nil
}

// onThread calls f on a thread that ends after that.
func onThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		done <- f()
	}()
	return <-done
}

// enter has the calling thread be in the namespace.
func (n *netns) enter() error { return unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET) }

// inside calls f on a thread in the namespace: sockets that f makes, and processes that it
// starts, are there.
func (n *netns) inside(f func() error) error {
	return onThread(func() error {
		if err := n.enter(); err != nil {
			return err
		}
		return f()
	})
}

func (n *netns) command(args ...string) error {
	return n.inside(func() error {
		out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, out)
		}
		return nil
	})
}

func (n *netns) listen(address string) (l net.Listener, err error) {
	err = n.inside(func() (err error) {
		l, err = net.Listen("tcp", address)
		return err
	})
	return l, err
}

func (n *netns) dial(address string) (c net.Conn, err error) {
	err = n.inside(func() (err error) {
		d := net.Dialer{Timeout: 5 * time.Second, FallbackDelay: -1} // on this thread alone
		c, err = d.Dial("tcp", address)
		return err
	})
	return c, err
}

// processes lists who is in the namespace, but for this process.
func (n *netns) processes() (pids []int) {
	links, _ := filepath.Glob("/proc/[0-9]*/ns/net")
	for _, link := range links {
		pid, _ := strconv.Atoi(strings.Split(link, "/")[2])
		if id, _ := os.Readlink(link); id == n.id && pid != os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids
}

func (n *netns) close() error { return n.file.Close() }

// network is a switch in a namespace of its own, to which the interface eth0 of others
// leads. Nothing of it is seen outside, so that each scene has the same addresses.
type network struct {
	hub   *netns
	ports []*netns
}

func newNetwork() (*network, error) {
	hub, err := newNetns()
	if err != nil {
		return nil, err
	}
	w := &network{hub: hub}
	if err := hub.command("ip", "link", "add", "hub0", "up", "type", "bridge"); err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

// attach makes a namespace with an address of 10.99.0.0/24 in the network.
func (w *network) attach(address string) (*netns, error) {
	n, err := newNetns()
	if err != nil {
		return nil, err
	}
	w.ports = append(w.ports, n)
	port := fmt.Sprintf("port%d", len(w.ports))
	peer := fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n.file.Fd())
	return n, errors.Join(
		w.hub.command("ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", peer),
		w.hub.command("ip", "link", "set", port, "master", "hub0", "up"),
		n.command("ip", "address", "add", address+"/24", "dev", "eth0"),
		n.command("ip", "link", "set", "eth0", "up"))
}

func (w *network) close() error {
	errs := []error{w.hub.close()}
	for _, n := range w.ports {
		errs = append(errs, n.close())
	}
	return errors.Join(errs...)
}

// direction is which packets of a namespace are lost.
type direction string

const (
	hears direction = "input"  // it is heard, and hears nothing
	tells direction = "output" // it hears, and is not heard
	both  direction = ""
)

// cut loses all packets of eth0 in a direction until mend.
func (n *netns) cut(d direction) error {
	rules := []string{"table inet cut", "delete table inet cut", "table inet cut"} // whatever was there
	for _, hook := range []direction{hears, tells} {
		if d != both && d != hook {
			continue
		}
		which := "iifname"
		if hook == tells {
			which = "oifname"
		}
		rules = append(rules,
			fmt.Sprintf("add chain inet cut %s { type filter hook %s priority 0; policy accept; }", hook, hook),
			fmt.Sprintf("add rule inet cut %s %s eth0 drop", hook, which))
	}
	return n.command("nft", strings.Join(rules, "\n"))
}

func (n *netns) mend() error { return n.command("nft", "table inet cut\ndelete table inet cut") }

// narrow has eth0 send no more than some kilobits a second until widen.
func (n *netns) narrow(kbit int) error {
	return n.command("tc", "qdisc", "replace", "dev", "eth0", "root", "tbf", "rate", fmt.Sprintf("%dkbit", kbit), "burst", "4kb", "latency", "500ms")
}

func (n *netns) widen() error { return n.command("tc", "qdisc", "del", "dev", "eth0", "root") }

// certify writes a certificate for addresses, which is its own authority, and its key.
func certify(certificate, key string, addresses ...string) error {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	now := time.Now()
	of := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: now.Add(-24 * time.Hour), NotAfter: now.Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	for _, a := range addresses {
		of.IPAddresses = append(of.IPAddresses, net.ParseIP(a))
	}
	der, err := x509.CreateCertificate(rand.Reader, of, of, &private.PublicKey, private)
	if err != nil {
		return err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(certificate, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600),
		os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600))
}
