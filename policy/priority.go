package policy

// priority runs the head of the highest priority, of those the one that has
// been runnable for longest, of those the first by ID. With ageing a waiting
// entry's priority counts as one more for each such time since its RunnableAt,
// in fractions too: a job that waits long enough comes first, so that none
// starves (book.rank).
//
// It has no target: of a tenant's share it says the tokens it has had.
type priority struct{ line heap[*tenant] }

func newPriority() *priority {
	return &priority{heap[*tenant]{before: headBefore, place: tenantPlace}}
}

func (p *priority) enter(t *tenant)   { p.line.push(t) }
func (p *priority) changed(t *tenant) { p.line.fix(t) }
func (p *priority) leave(t *tenant)   { p.line.remove(t) }

func (p *priority) first() *tenant { return firstIn(&p.line) }

func (p *priority) bill(*tenant, int64, bool) {}

func (p *priority) reweigh(*tenant, Tenant) {}

func (p *priority) stand(t *tenant) (part, had float64) { return 0, float64(t.counted().work) }

func headBefore(a, b *tenant) bool { return laneBefore(a.best(), b.best()) }

func firstIn(line *heap[*tenant]) *tenant {
	if line.len() == 0 {
		return nil
	}
	return line.first()
}
