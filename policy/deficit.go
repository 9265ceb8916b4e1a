package policy

// deficit shares out tokens in proportion to weights. Next is
//
//  1. a tenant of which nothing was completed within the window and nothing is
//     in flight: each gets at least that one job;
//  2. of those, or else of all, the one with the largest deficit: the smallest
//     actual_ratio − weight/Σweights;
//  3. of equals the one that was started longest ago.
//
// The actual ratio is the tenant's part in the tokens, those within the window
// and those expected of jobs in flight: so one round with many workers at hand
// does not give them all to the tenant that was furthest behind before it. A job that
// takes no tokens counts as one.
//
// Both ratios are taken among the tenants that could run now. So the deficits
// of those add up to 0, and what an idle or held tenant leaves goes to the
// others in proportion to their weights instead of in equal parts. A tenant
// that comes back makes up for at most what it missed within the window.
type deficit struct{ tree tournament }

func newDeficit() *deficit { return &deficit{newTournament()} }

func (d *deficit) enter(t *tenant)   { t.seat = d.tree.add(lineOf(t)) }
func (d *deficit) changed(t *tenant) { d.tree.set(t.seat, lineOf(t)) }

func (d *deficit) leave(t *tenant) {
	d.tree.remove(t.seat)
	t.seat = -1
}

func (d *deficit) first() *tenant { return d.tree.first() }

func (d *deficit) bill(*tenant, int64, bool) {}

func (d *deficit) reweigh(*tenant, Tenant) {}

func (d *deficit) stand(t *tenant) (part, had float64) {
	return t.settings.Weight, float64(t.counted().work)
}

func lineOf(t *tenant) line {
	return line{tenant: t, due: t.done == 0 && t.flight == 0, used: t.used.work + t.flying.work, weight: t.weight, turn: t.turn}
}
