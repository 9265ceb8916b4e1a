package scheduler

// bell wakes the one loop that waits for it. Rung several times before the loop looks,
// it wakes it once.
type bell chan struct{}

func newBell() bell { return make(bell, 1) }

func (b bell) ring() {
	select {
	case b <- struct{}{}:
	default:
	}
}
