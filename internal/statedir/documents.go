package statedir

import (
	"context"
	"crypto/sha256"
	"errors"
	"slices"
)

// Names of documents. In a state directory they are names of files.
const (
	TokensFile     = "tokens.json"     // who may ask over TCP, as hashes
	SessionsFile   = "sessions.json"   // the browsers that are logged in, as hashes
	IsolationsFile = "isolations.json" // what is out of use
	NodesFile      = "nodes.json"      // which nodes take no new jobs
	TriggersFile   = "triggers.json"   // when each trigger fired last
	AuditHeads     = "audit-heads"     // where the audit log of each scheduler ends; only where several share a store
)

// MaxDocument bounds the text of a document, in bytes.
const MaxDocument = 16 << 20

// ErrChanged is wrapped by the error of a write whose document is not of the version
// that was to be replaced.
var ErrChanged = errors.New("somebody else has written it")

// Documents are small texts by name that several processes may change at once. They
// are safe for concurrent use. Errors say which document they are about, as Where does.
type Documents interface {
	// Read returns the text and its version; the version "" means that there is none.
	Read(ctx context.Context, name string) (text []byte, version string, err error)
	// Version returns the version at less cost, to see whether something has changed. A
	// version never comes back once it was replaced.
	Version(ctx context.Context, name string) (string, error)
	// Write replaces the text of that version, or makes the document if version is "",
	// and returns the new version. The text is durable then. The error wraps ErrChanged if
	// the version is another one by now; after any other error the text may have been
	// written all the same.
	Write(ctx context.Context, name string, text []byte, version string) (string, error)
	// Where says where the document lies, for messages: e.g. its path.
	Where(name string) string
}

// Change replaces a document by what f makes of it; nil stands for none. f is called
// again when somebody else was faster. If it returns an error, Change does, and the
// document stays as it is.
func Change(ctx context.Context, docs Documents, name string, f func(old []byte) ([]byte, error)) error {
	for {
		old, version, err := docs.Read(ctx, name)
		if err != nil {
			return err
		}
		if version == "" {
			old = nil
		} else if old == nil {
			old = []byte{}
		}
		text, err := f(old)
		if err != nil {
			return err
		}
		if _, err = docs.Write(ctx, name, text, version); !errors.Is(err, ErrChanged) {
			return err
		}
		if err := context.Cause(ctx); err != nil {
			return err
		}
	}
}

// SoleWriter keeps a document that one process at a time writes. It replaces nothing but
// what it has read or written last, so that a process whose place another one has taken
// cannot undo what that has written. One goroutine at a time uses it.
type SoleWriter struct {
	docs    Documents
	name    string
	version string
	// unsure are the sums of texts that may have been written, though Write failed.
	unsure [][sha256.Size]byte
}

// NewSoleWriter returns one that takes it that there is no such document, until Read.
func NewSoleWriter(docs Documents, name string) *SoleWriter {
	return &SoleWriter{docs: docs, name: name}
}

// Read returns the text, nil if there is none.
func (w *SoleWriter) Read(ctx context.Context) ([]byte, error) {
	text, version, err := w.docs.Read(ctx, w.name)
	if err != nil || version == "" {
		text = nil
	}
	if err == nil {
		w.version, w.unsure = version, nil
	}
	return text, err
}

// Write replaces the text; it is durable then. The error wraps ErrChanged if somebody
// else has written the document.
func (w *SoleWriter) Write(ctx context.Context, text []byte) error {
	version, err := w.docs.Write(ctx, w.name, text, w.version)
	if errors.Is(err, ErrChanged) && w.mayGoOn(ctx) {
		version, err = w.docs.Write(ctx, w.name, text, w.version)
	}
	switch {
	case err == nil:
		w.version, w.unsure = version, nil
	case !errors.Is(err, ErrChanged):
		w.unsure = append(w.unsure, sha256.Sum256(text))
	}
	return err
}

// mayGoOn reports whether what lies there in place of the known version is nobody
// else's: the document was removed, or an earlier Write has succeeded that seemed to fail.
func (w *SoleWriter) mayGoOn(ctx context.Context) bool {
	text, version, err := w.docs.Read(ctx, w.name)
	if err != nil || version != "" && !slices.Contains(w.unsure, sha256.Sum256(text)) {
		return false
	}
	w.version = version
	return true
}

// Where says where the document lies, for messages.
func (w *SoleWriter) Where() string { return w.docs.Where(w.name) }
