package cli

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/internal/access"
	"github.com/agentsched/agentsched/internal/node"
	"github.com/agentsched/agentsched/internal/wire"
)

// farCheck examines the way to a scheduler on another host, step by step. A step that fails ends it: what lies behind
// cannot be told.
type farCheck struct {
	at       *target
	url      *url.URL
	tls      *tls.Config
	client   *http.Client
	findings []finding
}

const (
	// stepTime is how long each step may take.
	stepTime = 10 * time.Second
	// clockTolerance is how far clocks may be apart before it is worth a warning.
	clockTolerance = 30 * time.Second
	// maxProbed bounds what is read of an answer, in bytes.
	maxProbed = 8 << 20
)

// examineServers examines the way to each scheduler at --server.
func (at *target) examineServers(ctx context.Context) ([]finding, error) {
	urls, err := wire.ParseAddresses(at.server)
	if err != nil {
		return nil, usage(fmt.Errorf("--server: %w", err))
	}
	var findings []finding
	for _, u := range urls {
		if err := client.CheckURL(u); err != nil {
			return nil, usage(fmt.Errorf("--server: %w", err))
		}
		trust, err := trusted(at.caFile)
		if err != nil {
			return nil, usage(fmt.Errorf("--ca: %w", err))
		}
		c := &farCheck{at: at, url: u, tls: trust}
		c.run(ctx)
		findings = append(findings, c.findings...)
	}
	return findings, nil
}

func (c *farCheck) run(ctx context.Context) {
	transport := &http.Transport{TLSClientConfig: c.tls, DisableKeepAlives: true, TLSHandshakeTimeout: stepTime}
	defer transport.CloseIdleConnections()
	c.client = &http.Client{Transport: transport, Timeout: stepTime, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for _, step := range []func(context.Context) bool{c.resolve, c.connect, c.handshake, c.identify, c.compare, c.authenticate} {
		if !step(ctx) {
			return
		}
	}
}

// add notes a finding, and returns whether the next step makes sense. All but warnings are required.
func (c *farCheck) add(f finding) bool {
	f.Required = true
	c.findings = append(c.findings, f)
	return f.Status == "ok" || f.Status == "warning"
}

func (c *farCheck) fail(what, format string, args ...any) bool {
	return c.add(finding{What: what, Status: "error", Path: c.url.Host, Note: fmt.Sprintf(format, args...)})
}

func (c *farCheck) address() string {
	port := cmp.Or(c.url.Port(), map[string]string{"https": "443", "http": "80"}[c.url.Scheme])
	return net.JoinHostPort(c.url.Hostname(), port)
}

func (c *farCheck) resolve(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, stepTime)
	defer cancel()
	addrs, err := net.DefaultResolver.LookupHost(ctx, c.url.Hostname())
	if err != nil {
		return c.fail("name", "%v; check --server, the name service and /etc/hosts of this host", err)
	}
	return c.add(finding{What: "name", Status: "ok", Path: c.url.Host, Note: strings.Join(addrs, ", ")})
}

func (c *farCheck) connect(ctx context.Context) bool {
	began := time.Now()
	conn, err := (&net.Dialer{Timeout: stepTime}).DialContext(ctx, "tcp", c.address())
	if err != nil {
		return c.fail("connection", "%v; check that `scheduler serve` runs there with api.listen on this port, and that no firewall is between", err)
	}
	conn.Close()
	return c.add(finding{What: "connection", Status: "ok", Path: c.url.Host, Note: "within " + time.Since(began).Round(time.Millisecond/10).String()})
}

// handshake looks at the certificate, also at one that is not trusted: no token is sent on that connection.
func (c *farCheck) handshake(ctx context.Context) bool {
	if c.url.Scheme == "http" {
		return c.add(finding{What: "certificate", Status: "ok", Path: c.url.Host, Note: "none: http, on this machine"})
	}
	dialer := tls.Dialer{NetDialer: &net.Dialer{Timeout: stepTime}, Config: &tls.Config{ServerName: c.url.Hostname(), MinVersion: tls.VersionTLS12, InsecureSkipVerify: true}} // verified below
	ctx, cancel := context.WithTimeout(ctx, stepTime)
	defer cancel()
	conn, err := dialer.DialContext(ctx, "tcp", c.address())
	if err != nil {
		return c.fail("certificate", "%v; check that api.tls is set in the scheduler's configuration, and that the port is that of api.listen", err)
	}
	state := conn.(*tls.Conn).ConnectionState()
	conn.Close()
	return c.add(examineCertificate(&state, c.url, c.tls.RootCAs, time.Now()))
}

// examineCertificate tells whose certificate a scheduler shows, and what is wrong with it.
func examineCertificate(state *tls.ConnectionState, at *url.URL, roots *x509.CertPool, now time.Time) finding {
	leaf, between := state.PeerCertificates[0], x509.NewCertPool()
	for _, x := range state.PeerCertificates[1:] {
		between.AddCert(x)
	}
	_, err := leaf.Verify(x509.VerifyOptions{DNSName: at.Hostname(), Roots: roots, Intermediates: between, CurrentTime: now})
	names := leaf.DNSNames
	for _, ip := range leaf.IPAddresses {
		names = append(names, ip.String())
	}
	f := finding{What: "certificate", Status: "ok", Version: tls.VersionName(state.Version), Path: at.Host}
	f.Note = fmt.Sprintf("for %s, by %s, until %s", strings.Join(names, ", "), leaf.Issuer.CommonName, leaf.NotAfter.Local().Format(time.DateTime))
	if err == nil {
		if note := expiryNote(leaf.NotAfter, now); note != "" {
			f.Status, f.Note = "warning", f.Note+"; "+note+": renew it, such as by `scheduler ca issue`"
		}
		return f
	}
	f.Status = "error"
	_, unknown := errors.AsType[x509.UnknownAuthorityError](err)
	_, name := errors.AsType[x509.HostnameError](err)
	invalid, _ := errors.AsType[x509.CertificateInvalidError](err)
	switch {
	case unknown:
		f.Note += "; nobody trusted has signed it: give --ca the certificate of who has, such as ca.crt of `scheduler ca`"
	case name:
		f.Note += fmt.Sprintf("; it is not for %s: use one of its names, or issue it anew with --host %s", at.Hostname(), at.Hostname())
	case invalid.Reason == x509.Expired:
		f.Note += fmt.Sprintf("; it is not valid at %s, by the clock of this host: renew it, such as by `scheduler ca issue`, or set the clock", now.Local().Format(time.DateTime))
	default:
		f.Note += "; " + err.Error()
	}
	return f
}

// ask asks a scheduler, and decodes an answer of JSON into result if the status is that of success.
func (c *farCheck) ask(ctx context.Context, path, token string, result any) (*http.Response, *api.Problem, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url.JoinPath(path).String(), nil)
	if err != nil {
		return nil, nil, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxProbed))
	if err != nil {
		return nil, nil, err
	}
	if resp.StatusCode/100 == 2 {
		return resp, nil, json.Unmarshal(text, result)
	}
	var p api.Problem
	if json.Unmarshal(text, &p) != nil || p.Type == "" {
		p = api.Problem{Status: resp.StatusCode, Detail: firstLine(string(text))}
	}
	return resp, &p, nil
}

// identify makes sure that a scheduler answers, and compares clocks.
func (c *farCheck) identify(ctx context.Context) bool {
	var h api.Health
	began := time.Now()
	resp, problem, err := c.ask(ctx, "/healthz", "", &h)
	now := began.Add(time.Since(began) / 2)
	switch {
	case err != nil:
		return c.fail("scheduler", "%v; what answers there is no scheduler", err)
	case problem != nil && problem.Name() == "wrong_host":
		return c.fail("scheduler", "it does not know the name %s: add it to api.hosts in its configuration", c.url.Hostname())
	case problem != nil:
		return c.fail("scheduler", "the answer is %s: %s; check --server", resp.Status, problem.Detail)
	case !h.OK:
		return c.fail("scheduler", "what answers there is no scheduler, or is not well: %s", h.Why)
	}
	f := finding{What: "scheduler", Status: "ok", Path: c.url.Host, Note: "it leads, or works alone"}
	if h.Standby {
		f.Note = "it stands by, and passes on what another one has to decide"
	}
	c.add(f)
	return c.add(examineClock(resp.Header.Get("Date"), now))
}

// examineClock compares this host's clock with the Date of an answer, which has whole seconds.
func examineClock(date string, now time.Time) finding {
	f := finding{What: "clock", Status: "ok"}
	theirs, err := http.ParseTime(date)
	if err != nil {
		f.Status, f.Note = "warning", "the answer has no date"
		return f
	}
	switch apart := now.Sub(theirs.Add(time.Second / 2)).Round(time.Second); {
	case apart.Abs() <= clockTolerance:
		f.Note = fmt.Sprintf("%s apart from the scheduler's", apart.Abs())
	default:
		f.Status, f.Note = "warning", fmt.Sprintf("%s apart from the scheduler's: leases do not mind, but times in lists and logs do not fit, and certificates may seem to have ended; set it by NTP", apart.Abs())
	}
	return f
}

// compare looks whether both speak the same API: the routes of this program that the scheduler does not have.
func (c *farCheck) compare(ctx context.Context) bool {
	var document struct {
		Info struct {
			Title   string `json:"title"`
			Version string `json:"version"`
		} `json:"info"`
		Paths map[string]json.RawMessage `json:"paths"`
	}
	_, problem, err := c.ask(ctx, "/openapi.json", "", &document)
	switch {
	case err != nil:
		return c.fail("version", "its document of the API cannot be read: %v", err)
	case problem != nil:
		return c.fail("version", "its document of the API is not there: %s", problem.Detail)
	case document.Info.Title != "agentsched":
		return c.fail("version", "what answers there is %.40q and no scheduler; check --server", document.Info.Title)
	}
	f := finding{What: "version", Status: "ok", Version: document.Info.Version, Path: c.url.Host, Note: "as this program"}
	if own := c.at.prog.version; own != document.Info.Version {
		f.Status, f.Note = "warning", "this program has "+own+": neighbouring versions work together; upgrade the older one"
	}
	if _, ok := document.Paths["/v1/node"]; !ok {
		f.Status, f.Note = "warning", f.Note+"; it takes no nodes"
	}
	return c.add(f)
}

// authenticate tells what the token may do. Of a node's it tells whether a node would be taken, without one that works
// under its name being disturbed: no session is asked for.
func (c *farCheck) authenticate(ctx context.Context) bool {
	token, err := c.at.token()
	switch {
	case err != nil:
		return c.fail("token", "%v", err)
	case token == "":
		return c.add(finding{What: "token", Status: "warning", Note: "none: give --token-file FILE or " + tokenVariable + ", with what `scheduler token create` printed"})
	}
	var me api.Me
	_, problem, err := c.ask(ctx, "/v1/me", token, &me)
	switch {
	case err != nil:
		return c.fail("token", "%v", err)
	case problem == nil:
		return c.add(finding{What: "token", Status: "ok", Version: me.Role, Note: fmt.Sprintf("%s may %s", me.Name, me.Role)})
	case problem.Status != http.StatusForbidden:
		return c.fail("token", "%s", problem.Detail)
	}
	resp, problem, err := c.ask(ctx, "/v1/node", token, &struct{}{})
	switch {
	case err != nil:
		return c.fail("token", "%v", err)
	case problem == nil || problem.Status == http.StatusForbidden:
		return c.fail("token", "it is neither one of a person nor one of a node: make one with `scheduler token create NAME --role node`")
	}
	c.add(finding{What: "token", Status: "ok", Version: string(access.Node), Note: "it may be the node of its name"})
	return c.add(examineNode(resp, problem))
}

// examineNode tells whether a scheduler would take a node, by its answer to a request that is none of a node.
func examineNode(resp *http.Response, p *api.Problem) finding {
	f := finding{What: "node", Status: "ok", Version: fmt.Sprintf("%d to %d", node.MinProtocol, node.MaxProtocol)}
	theirs := resp.Header.Get(node.HeaderProtocols)
	var least, most int
	switch n, _ := fmt.Sscanf(theirs, "%d-%d", &least, &most); {
	case p.Status == http.StatusServiceUnavailable:
		f.Status, f.Note = "warning", p.Detail
	case theirs == "":
		f.Status, f.Note = "warning", "the scheduler does not say which versions of the nodes' protocol it speaks"
	case n != 2 || most < node.MinProtocol || least > node.MaxProtocol:
		f.Status, f.Note = "error", fmt.Sprintf("the scheduler speaks versions %.20q of the nodes' protocol; upgrade the older one", theirs)
	default:
		f.Note = "a node of this program would be taken"
	}
	return f
}
