package trigger

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The headers of a webhook.
const (
	// SignatureHeader holds "sha256=" and, in hexadecimal, HMAC-SHA-256 by the
	// secret over the body, as GitHub sends it; with Webhook.MaxAge over the text
	// of TimestampHeader, a ".", and the body.
	SignatureHeader = "X-Hub-Signature-256"
	// TimestampHeader holds when the request was made: seconds since 1970.
	TimestampHeader = "X-Hub-Timestamp"
	// DeliveryHeader, or that of GitHub, holds an id that is the same when the
	// sender tries again: such a request fires once.
	DeliveryHeader       = "X-Delivery-Id"
	gitHubDeliveryHeader = "X-GitHub-Delivery"
	gitHubEventHeader    = "X-GitHub-Event"
)

const (
	// maxDeliveries ids and signatures are remembered for each webhook, for at most
	// deliveryTime.
	maxDeliveries = 2048
	deliveryTime  = 72 * time.Hour
	// maxDeliveryID is in bytes.
	maxDeliveryID = 200
)

// runWebhook makes the webhook answer until ctx ends.
func (s *source) runWebhook(ctx context.Context) {
	w := s.settings.Webhook
	key, err := s.runner.secret(w)
	if err != nil {
		s.failed(ctx, err) // the next reload reads it again
	}
	e := &endpoint{source: s, ctx: ctx, key: key}
	r := s.runner
	r.mu.Lock()
	r.hooks[w.Path] = e
	r.mu.Unlock()
	<-ctx.Done()
	r.mu.Lock()
	delete(r.hooks, w.Path)
	r.mu.Unlock()
	e.mu.Lock() // a request may be on its way to Submit
	defer e.mu.Unlock()
	e.ended = true
}

// endpoint answers the requests to one webhook.
type endpoint struct {
	source *source
	ctx    context.Context // the source's: a sender that hangs up stops no submission
	key    []byte          // nil if there is none

	mu    sync.Mutex // held from the look for an earlier delivery until this one is written down
	ended bool
}

// ServeHTTP answers 202 when jobs were submitted, 200 when there is nothing to
// do, 4xx to what will never be accepted, 503 when it should be tried again.
func (e *endpoint) ServeHTTP(rw http.ResponseWriter, req *http.Request) {
	w := e.source.settings.Webhook
	methods := w.Methods
	if len(methods) == 0 {
		methods = []string{http.MethodPost}
	}
	if !slices.Contains(methods, req.Method) {
		rw.Header().Set("Allow", strings.Join(methods, ", "))
		answer(rw, http.StatusMethodNotAllowed, "", "want "+strings.Join(methods, " or "))
		return
	}
	if e.key == nil {
		again(rw, "this webhook has no secret on its host")
		return
	}
	most := w.MaxBodyBytes
	if most == 0 {
		most = DefaultMaxBody
	}
	// What the header tells is refused before a byte of the body is waited for.
	if _, refused := e.header(req.Header); refused != "" {
		unread(rw, http.StatusUnauthorized, refused)
		return
	}
	body, ok := e.read(rw, req, int64(most))
	if !ok {
		return
	}
	now := e.source.runner.cfg.Now().UTC().Round(0)
	if refused := e.check(req.Header, body, now); refused != "" {
		answer(rw, http.StatusUnauthorized, "", refused)
		return
	}
	id := deliveryID(req.Header)
	if len(id) > maxDeliveryID {
		answer(rw, http.StatusBadRequest, "", "the delivery id is too long")
		return
	}
	if req.Header.Get(gitHubEventHeader) == "ping" {
		answer(rw, http.StatusOK, "", "pong")
		return
	}
	select {
	case e.source.runner.room <- struct{}{}:
		defer func() { <-e.source.runner.room }()
		e.accept(rw, req.Header, id, body, now)
	default:
		again(rw, "too many requests at once")
	}
}

// read reads a body of at most so many bytes. ok is false if it has answered why
// that cannot be.
func (e *endpoint) read(rw http.ResponseWriter, req *http.Request, most int64) (body []byte, ok bool) {
	tooLarge := func() {
		unread(rw, http.StatusRequestEntityTooLarge, fmt.Sprintf("the body has more than %d bytes", most))
	}
	if req.ContentLength > most {
		tooLarge()
		return nil, false
	}
	control := http.NewResponseController(rw)
	// Where there is no connection, in a test, there is no slow sender.
	control.SetReadDeadline(time.Now().Add(bodyTime))                                         //nolint:errcheck // see above
	done := e.source.runner.readings.add(func() { control.SetReadDeadline(time.Unix(1, 0)) }) //nolint:errcheck // see above
	body, err := io.ReadAll(http.MaxBytesReader(rw, req.Body, most))
	pushed := done()
	_, large := errors.AsType[*http.MaxBytesError](err)
	switch {
	case err == nil:
		return body, true
	case large:
		tooLarge()
	case pushed:
		rw.Header().Set("Retry-After", "30")
		unread(rw, http.StatusServiceUnavailable, "the body comes too slowly while others wait")
	case errors.Is(err, os.ErrDeadlineExceeded):
		unread(rw, http.StatusRequestTimeout, fmt.Sprintf("the body has not come within %s", bodyTime))
	default:
		answer(rw, http.StatusBadRequest, "", "the body ended early")
	}
	return nil, false
}

// unread refuses a request whose body was not read to its end: package http would
// wait for the rest, before the answer and after it.
func unread(rw http.ResponseWriter, code int, why string) {
	rw.Header().Set("Connection", "close")
	http.NewResponseController(rw).SetReadDeadline(time.Unix(1, 0)) //nolint:errcheck // as above: there is no connection in a test
	answer(rw, code, "", why)
}

// reloading is said between the end of an endpoint and what follows it.
const reloading = "the scheduler ends or reads its configuration again"

func again(rw http.ResponseWriter, why string) {
	rw.Header().Set("Retry-After", "30")
	answer(rw, http.StatusServiceUnavailable, "", why)
}

func deliveryID(h http.Header) string {
	if id := h.Get(gitHubDeliveryHeader); id != "" {
		return id
	}
	return h.Get(DeliveryHeader)
}

// check returns why a request is not from somebody who has the secret, "" if it
// is. Without a right signature it says nothing about the rest.
func (e *endpoint) check(h http.Header, body []byte, now time.Time) string {
	age, stamp := e.source.settings.Webhook.MaxAge.Std(), h.Get(TimestampHeader)
	given, refused := e.header(h)
	if refused != "" {
		return refused
	}
	if !hmac.Equal(given, e.sign(stamp, body)) {
		return SignatureHeader + " is not right"
	}
	if age == 0 {
		return ""
	}
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil {
		return TimestampHeader + " is not a number of seconds"
	}
	if off := now.Sub(time.Unix(seconds, 0)); off > age || off < -age {
		return fmt.Sprintf("%s is more than %s away", TimestampHeader, age)
	}
	return ""
}

// header returns the signature of a request, or why it cannot be right whatever the
// body is.
func (e *endpoint) header(h http.Header) (signature []byte, refused string) {
	if e.source.settings.Webhook.MaxAge > 0 && h.Get(TimestampHeader) == "" {
		return nil, TimestampHeader + " is missing"
	}
	given, err := hex.DecodeString(strings.TrimPrefix(h.Get(SignatureHeader), "sha256="))
	if err != nil || len(given) != sha256.Size || !strings.HasPrefix(h.Get(SignatureHeader), "sha256=") {
		return nil, SignatureHeader + " is missing or has not the form sha256=HEX"
	}
	return given, ""
}

func (e *endpoint) sign(stamp string, body []byte) []byte {
	mac := hmac.New(sha256.New, e.key)
	if e.source.settings.Webhook.MaxAge > 0 {
		io.WriteString(mac, stamp+".") //nolint:errcheck // a hash takes everything
	}
	mac.Write(body)
	return mac.Sum(nil)
}

// accept submits what is new.
func (e *endpoint) accept(rw http.ResponseWriter, h http.Header, id string, body []byte, now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended {
		again(rw, reloading)
		return
	}
	// A request that somebody recorded may come with another delivery id, which
	// is not signed, but not with another signature.
	var keys []string
	if id != "" {
		keys = append(keys, short("id", id))
	}
	keys = append(keys, short("signature", strings.ToLower(h.Get(SignatureHeader))))
	seen := e.source.record().Deliveries
	for _, key := range keys {
		if slices.ContainsFunc(seen, func(d delivery) bool { return d.Key == key }) {
			answer(rw, http.StatusOK, "", "this delivery was accepted before")
			return
		}
	}
	f := Firing{ID: timedID(e.source.name, now), At: now, Event: eventText(string(body))}
	if id != "" || e.source.settings.Webhook.MaxAge > 0 { // else the same body may come again, much later
		f.ID = fmt.Sprintf("%s#%s", e.source.name, keys[0])
	}
	skipped, err := e.source.fire(e.ctx, f, func(r *record) { r.Deliveries = remember(r.Deliveries, keys, now) })
	switch {
	case err != nil:
		again(rw, "the jobs could not be submitted")
	case skipped:
		answer(rw, http.StatusOK, f.ID, "skipped: a job of this trigger is queued or running")
	default:
		answer(rw, http.StatusAccepted, f.ID, "submitted")
	}
}

// remember adds keys to the deliveries and drops the oldest.
func remember(list []delivery, keys []string, now time.Time) []delivery {
	list = slices.DeleteFunc(list, func(d delivery) bool { return now.Sub(d.At) > deliveryTime })
	for _, key := range keys {
		list = append(list, delivery{Key: key, At: now})
	}
	return list[max(len(list)-maxDeliveries, 0):]
}

// short returns a text of fixed length for one of any.
func short(kind, text string) string {
	sum := sha256.Sum256([]byte(kind + " " + text))
	return hex.EncodeToString(sum[:16])
}
