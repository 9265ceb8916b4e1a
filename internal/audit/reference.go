package audit

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/job"
)

// References are what another log says of where a log ended.
type References struct {
	Log   string // the other log: its folder or file
	Whole bool   // it is whole itself
	list  []reference
}

// reference is a record of another log that says that this one had a record.
type reference struct {
	head   Head
	record int64     // of the other log
	time   time.Time // of that
	found  bool
}

// ReadReferences reads what the log in a folder, or a file of one, says of the log of an
// instance. The error says so if that is nothing.
func ReadReferences(path string, of job.InstanceID) (References, error) {
	v, err := readLog(path)
	if err != nil {
		return References{}, err
	}
	refs := References{Log: path}
	for _, r := range v.heads {
		if h, ok := r.detail.Heads[of]; ok {
			refs.list = append(refs.list, reference{head: h.Head, record: r.seq, time: r.time})
		}
	}
	report := v.finish()
	refs.Whole = report.Whole()
	if len(refs.list) == 0 {
		return refs, fmt.Errorf("%s does not say where the log of instance %s ended: it has no %s record of that", path, of, ActionHeads)
	}
	return refs, nil
}

// InstanceOf returns whose log lies in a folder, or in a file, as its records say; ""
// if none does.
func InstanceOf(path string) (job.InstanceID, error) {
	v, err := readLog(path)
	if err != nil || len(v.heads) == 0 {
		return "", err
	}
	return v.heads[len(v.heads)-1].detail.Instance, nil
}

func readLog(path string) (*verifier, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read audit log: %w", err)
	}
	if info.IsDir() {
		return (&Expected{}).readDir(path)
	}
	return (&Expected{}).readFiles([]string{path})
}

// headsRecord is a record of ActionHeads.
type headsRecord struct {
	seq    int64
	time   time.Time
	detail headsDetail
}

// noteHeads keeps a record of ActionHeads.
func (v *verifier) noteHeads(r *api.AuditRecord) {
	h := headsRecord{seq: r.Seq, time: r.Time}
	if json.Unmarshal(r.Detail, &h.detail) == nil {
		v.heads = append(v.heads, h)
	}
}

// expectReferences has the records looked for to which other logs refer.
func (v *verifier) expectReferences(all []References) {
	v.bySeq = map[int64][]*reference{}
	for _, refs := range all {
		refs.list = slices.Clone(refs.list)
		v.refs = append(v.refs, refs)
		for i := range refs.list {
			r := &refs.list[i]
			v.bySeq[r.head.Seq] = append(v.bySeq[r.head.Seq], r)
		}
	}
}

// checkReferences tells which records are not there to which another log refers.
func (v *verifier) checkReferences() {
	for _, refs := range v.refs {
		var missing, gone, behind, found []*reference
		for i := range refs.list {
			r := &refs.list[i]
			switch {
			case r.found || r.head.Seq == 0:
				found = append(found, r)
			case r.head.Seq < v.First:
				gone = append(gone, r) // whether rightly so is said elsewhere
			case v.part && r.head.Seq > v.Last.Seq:
				behind = append(behind, r)
			default:
				missing = append(missing, r)
			}
		}
		name := filepath.Clean(refs.Log)
		if !refs.Whole {
			v.Notes = append(v.Notes, fmt.Sprintf("%s is not whole itself: `scheduler audit verify %s` says why", name, name))
		}
		if n := len(found); n > 0 {
			v.Notes = append(v.Notes, fmt.Sprintf("%s refers to %d records that are in the chain, at last to record %d", name, n, slices.MaxFunc(found, bySeq).head.Seq))
		}
		if n := len(gone); n > 0 {
			v.Notes = append(v.Notes, fmt.Sprintf("%s refers to %d records before record %d, with which the log begins", name, n, v.First))
		}
		if n := len(behind); n > 0 {
			v.Notes = append(v.Notes, fmt.Sprintf("%s refers to %d records behind record %d, with which the files end that were given", name, n, v.Last.Seq))
		}
		if len(missing) == 0 {
			continue
		}
		first := slices.MinFunc(missing, bySeq)
		p := Problem{Seq: first.head.Seq, Kind: NotThere}
		p.Text = fmt.Sprintf("record %d with the hash %s is not in the chain, and was when record %d of %s was written at %s", first.head.Seq, first.head.Hash, first.record, name, first.time.Format(time.RFC3339))
		if first.head.Seq > v.Last.Seq {
			p.Kind, p.Text = Cut, fmt.Sprintf("the log had record %d when record %d of %s was written at %s, and ends with %d now", first.head.Seq, first.record, name, first.time.Format(time.RFC3339), v.Last.Seq)
		}
		if n := len(missing) - 1; n > 0 {
			p.Text += fmt.Sprintf("; so it is with %d more records to which that log refers", n)
		}
		v.problem(p)
	}
}

func bySeq(a, b *reference) int { return cmp.Compare(a.head.Seq, b.head.Seq) }
