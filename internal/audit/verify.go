package audit

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agentsched/agentsched/api"
)

// Kind is what is wrong with a log.
type Kind string

const (
	Edited      Kind = "edited"       // a line is not as it was written, or not behind the line before it
	Cut         Kind = "cut"          // records are missing
	MissingFile Kind = "missing_file" // a whole file is missing
	Reordered   Kind = "reordered"    // a record stands in another place, or twice
	TornTail    Kind = "torn_tail"    // a last line has no end
	NotThere    Kind = "not_there"    // a record that was expected is not in the chain
	NoHead      Kind = "no_head"      // the file that names the last record is missing or damaged
	Noticed     Kind = "noticed"      // damage that was recorded when the log was opened
)

// Problem is one thing that is wrong.
type Problem struct {
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"` // from 1
	Seq  int64  `json:"seq,omitempty"`
	Kind Kind   `json:"kind"`
	Text string `json:"text"`

	upTo int64 // of Cut: the last record that is missing
}

// Report is what Verify has found. A log without Problems is whole from First on.
type Report struct {
	Files    []string  `json:"files"`
	Records  int       `json:"records"`
	First    int64     `json:"first_seq"`
	Last     Head      `json:"last"`
	Problems []Problem `json:"problems"`
	// Notes are what is no fault and worth to know: files that were removed by
	// rotation, gaps that were recorded.
	Notes []string `json:"notes,omitempty"`
}

// Whole reports whether nothing is wrong.
func (r *Report) Whole() bool { return len(r.Problems) == 0 }

// Expected is what is known of a log from elsewhere.
type Expected struct {
	Heads      []Head       // records that must be in it
	References []References // what other logs say of it
}

// Verify is Expected.Verify with heads alone.
func Verify(dir string, expect ...Head) (Report, error) {
	return (&Expected{Heads: expect}).Verify(dir)
}

// VerifyFiles is Expected.VerifyFiles with heads alone.
func VerifyFiles(paths []string, expect ...Head) (Report, error) {
	return (&Expected{Heads: expect}).VerifyFiles(paths)
}

// Verify reads the whole log in a folder, also while it is written, and looks
// whether each record is as it was written, behind the one that it was written
// behind; whether it ends where the folder's head says; and whether it has the
// expected records. The error is of reading, not of what was read.
func (x *Expected) Verify(dir string) (Report, error) {
	v, err := x.readDir(dir)
	if err != nil {
		return Report{}, err
	}
	return v.finish(), nil
}

func (x *Expected) readDir(dir string) (*verifier, error) {
	var err error
	for range 3 { // a file may be removed by rotation between two looks
		head, headErr := readHead(dir) // first: the log may grow meanwhile
		var numbers []int
		if numbers, err = files(dir); err != nil {
			return nil, fmt.Errorf("verify audit log: %w", err)
		}
		var paths []string
		for _, n := range numbers {
			paths = append(paths, filepath.Join(dir, fileName(n)))
		}
		v := newVerifier(x)
		if headErr == nil {
			v.want = append(v.want, wanted{Head: head, end: true})
		}
		if err = v.read(paths); isMissing(err) {
			continue
		}
		if v.torn() && held(dir) {
			v.Problems = v.Problems[:len(v.Problems)-1] // the line is being written
		}
		if headErr != nil && (len(paths) > 0 || !isMissing(headErr)) {
			v.problem(Problem{File: headName, Kind: NoHead, Text: fmt.Sprintf("the last record is not known, so that a cut end cannot be seen: %v", headErr)})
		}
		return v, err
	}
	return nil, fmt.Errorf("verify audit log: %w", err)
}

// VerifyFiles is Verify of some files of a log, in their order, without its head:
// what stands before the first of them and behind the last is not looked at.
func (x *Expected) VerifyFiles(paths []string) (Report, error) {
	v, err := x.readFiles(paths)
	return v.finish(), err
}

func (x *Expected) readFiles(paths []string) (*verifier, error) {
	v := newVerifier(x)
	v.part = true
	return v, v.read(paths)
}

// held reports whether a process writes to the log.
func held(dir string) bool {
	f, err := take(dir, 0)
	if err == nil {
		release(f)
	}
	return errors.Is(err, ErrHeld)
}

type wanted struct {
	Head
	end   bool // it is the folder's head
	found bool
}

type verifier struct {
	Report
	want     []wanted
	next     int64  // the number that the next record has; 0: any
	prev     string // its Prev; "" unknown
	firstAt  Problem
	before   string // the Prev of the first record
	part     bool   // only some files are read
	removed  []removed
	lastFile int // number of the last file

	heads []headsRecord // of other logs, that this one has
	refs  []References  // that other logs have to this one
	bySeq map[int64][]*reference
}

func newVerifier(x *Expected) *verifier {
	v := &verifier{}
	v.Problems = []Problem{}
	for _, h := range x.Heads {
		v.want = append(v.want, wanted{Head: h})
	}
	v.expectReferences(x.References)
	return v
}

func (v *verifier) problem(p Problem) { v.Problems = append(v.Problems, p) }

func (v *verifier) read(paths []string) error {
	for i, path := range paths {
		name := filepath.Base(path)
		number := fileNumber(name)
		if number > 0 && v.lastFile > 0 && number != v.lastFile+1 {
			v.problem(Problem{File: name, Kind: MissingFile, Text: fmt.Sprintf("it stands behind %s: what is between them is missing", fileName(v.lastFile))})
		}
		v.lastFile = number
		v.Files = append(v.Files, name)
		lines := 0
		err := eachLine(path, func(n int, line []byte, whole bool) {
			lines = n
			if !whole {
				v.problem(Problem{File: name, Line: n, Seq: v.next, Kind: TornTail, Text: fmt.Sprintf("its last line, of %d bytes, has no end", len(line))})
				return
			}
			v.line(name, n, line)
		})
		if err != nil {
			return fmt.Errorf("verify audit log: %w", err)
		}
		if lines == 0 && i < len(paths)-1 {
			v.problem(Problem{File: name, Kind: Cut, Text: "it is empty"})
		}
	}
	return nil
}

func (v *verifier) line(file string, n int, line []byte) {
	r, err := parse(line)
	if err != nil {
		v.problem(Problem{File: file, Line: n, Seq: v.next, Kind: Edited, Text: fmt.Sprintf("the line is not as it was written: %v", err)})
		if v.next > 0 {
			v.next++
		}
		v.prev = ""
		return
	}
	at := Problem{File: file, Line: n, Seq: r.Seq}
	v.Records++
	switch {
	case v.next == 0:
		v.First, v.firstAt, v.before = r.Seq, at, r.Prev
		if r.Seq == 1 && r.Prev != Genesis {
			at.Kind, at.Text = Edited, "it is the first record and says that another one stood before it"
			v.problem(at)
		}
	case r.Seq < v.next:
		at.Kind, at.Text = Reordered, fmt.Sprintf("record %d stands where %d or a later one belongs", r.Seq, v.next)
		for i, p := range v.Problems {
			if p.Kind == Cut && p.Seq <= r.Seq && r.Seq <= p.upTo {
				v.Problems[i].Kind = Reordered
			}
		}
		v.problem(at)
		return // the chain goes on behind the records that stand in their places
	case r.Seq > v.next:
		at.Kind, at.Seq, at.upTo = Cut, v.next, r.Seq-1
		at.Text = fmt.Sprintf("records %d to %d are missing before it", v.next, r.Seq-1)
		v.problem(at)
	case v.prev != "" && r.Prev != v.prev:
		at.Kind, at.Text = Edited, "it was not written behind the record before it"
		v.problem(at)
	}
	v.note(at, &r)
	v.next, v.prev = r.Seq+1, r.Hash
	v.Last = Head{r.Seq, r.Hash}
	for i, w := range v.want {
		if w.Head == v.Last {
			v.want[i].found = true
		}
	}
	for _, ref := range v.bySeq[r.Seq] {
		ref.found = ref.found || ref.head == v.Last
	}
}

// note looks at the records of the log itself.
func (v *verifier) note(at Problem, r *api.AuditRecord) {
	if r.Who.Role != RoleSystem {
		return
	}
	switch r.Action {
	case ActionRemoved:
		var d removed
		if json.Unmarshal(r.Detail, &d) == nil {
			v.removed = append(v.removed, d)
		}
	case ActionHeads:
		v.noteHeads(r)
	case ActionGap, ActionTorn:
		v.Notes = append(v.Notes, fmt.Sprintf("record %d: %s %s", r.Seq, r.Action, r.Detail))
	case ActionDamaged:
		at.Kind, at.Text = Noticed, string(r.Detail)
		v.problem(at)
	case ActionBegin:
		if strings.Contains(string(r.Detail), `"damaged":`) {
			at.Kind, at.Text = Noticed, string(r.Detail)
			v.problem(at)
		}
	}
}

// torn reports whether the last file's last line has no end.
func (v *verifier) torn() bool {
	n := len(v.Problems)
	return n > 0 && v.Problems[n-1].Kind == TornTail && v.Problems[n-1].File == v.Files[len(v.Files)-1]
}

func (v *verifier) finish() Report {
	if v.First > 1 {
		known := slices.ContainsFunc(v.removed, func(d removed) bool {
			return d.LastSeq == v.First-1 && d.LastHash == v.before
		})
		switch {
		case known:
			v.Notes = append(v.Notes, fmt.Sprintf("records 1 to %d were removed by rotation, which is recorded", v.First-1))
		case v.part:
			v.Notes = append(v.Notes, fmt.Sprintf("records 1 to %d are in files that were not given; the first here follows %d:%s", v.First-1, v.First-1, v.before))
		default:
			v.problem(Problem{File: v.firstAt.File, Line: v.firstAt.Line, Seq: v.First, Kind: MissingFile, Text: fmt.Sprintf("records 1 to %d are missing before it, and no record says that rotation removed them", v.First-1)})
		}
	}
	for _, w := range v.want {
		switch {
		case w.found || w.Seq == 0:
		case w.end && w.Seq > v.Last.Seq:
			v.problem(Problem{File: headName, Seq: w.Seq, Kind: Cut, Text: fmt.Sprintf("the log ended with record %d or a later one, and ends with %d now", w.Seq, v.Last.Seq)})
		case w.Seq < v.First:
			v.problem(Problem{Seq: w.Seq, Kind: NotThere, Text: fmt.Sprintf("record %d is not there any more: the log begins with %d", w.Seq, v.First)})
		default:
			v.problem(Problem{Seq: w.Seq, Kind: NotThere, Text: fmt.Sprintf("record %d with the hash %s is not in the chain", w.Seq, w.Hash)})
		}
	}
	v.checkReferences()
	return v.Report
}
