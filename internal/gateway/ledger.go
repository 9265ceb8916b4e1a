package gateway

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// Account names whose budget a request is charged to, e.g. "run/J/2", "tenant/acme" or "all".
type Account string

// ErrNoAccount is the error of a request whose account was not granted, or was dropped while it waited.
var ErrNoAccount = errors.New("no budget was granted")

// A BudgetError says that an account is used up: nothing begins any more.
type BudgetError struct {
	Account Account
	Spent   Amount
	Limit   Amount
}

func (e *BudgetError) Error() string {
	what := fmt.Sprintf("%d of %d tokens", e.Spent.Tokens, e.Limit.Tokens)
	if e.Spent.Tokens < e.Limit.Tokens {
		what = fmt.Sprintf("%.4f of %.4f US dollars", float64(e.Spent.Micros)/1e6, float64(e.Limit.Micros)/1e6)
	}
	return fmt.Sprintf("the budget of %s is used up: %s", e.Account, what)
}

// Ledger holds what accounts may spend, have spent and have promised. It is the part of the scheduler's ledger that this
// core was granted. Its methods may be called from several goroutines.
//
// A request reserves its worst case in all of its accounts at once, in the order of arrival among those that want the
// same account:
//
//	spent ≥ limit                                 it is refused
//	spent + reserved + worst ≤ limit              it begins
//	spent + worst ≤ limit < all of these          it waits until others have ended
//	limit < spent + worst                         it begins as soon as nothing else is reserved in that account, and
//	                                              nothing else begins there before it has ended
type Ledger struct {
	mu       sync.Mutex
	accounts map[Account]*account
	queue    []*waiter // in order of arrival
	// observe sees each reservation that is made or has ended, with mu held. It is for tests; nil: nobody does.
	observe func(r *reservation, ended bool, spent Amount)
}

type account struct {
	limit, spent, reserved Amount
	running                int          // reservations
	alone                  *reservation // has the account to itself
}

// waiter is a request that has not begun. Its channel has room for the one answer.
type waiter struct {
	accounts []Account
	demand   demand
	answer   chan answer
}

type answer struct {
	reservation *reservation
	err         error
}

// reservation is what a request may spend; settle ends it.
type reservation struct {
	ledger   *Ledger
	accounts []*account // as they were: one that is dropped and granted again is another
	held     []Amount   // in each account
	output   int64      // tokens that the request may be answered with
	alone    bool
	settled  bool
}

// NewLedger returns a ledger without accounts.
func NewLedger() *Ledger { return &Ledger{accounts: map[Account]*account{}} }

// Grant sets what an account may spend in all since it was first granted, so that granting the same twice changes
// nothing. A limit may also shrink below what is spent or reserved: then nothing more begins. A zero Amount allows
// nothing; Unlimited stands for no limit.
func (l *Ledger) Grant(a Account, total Amount) {
	l.mu.Lock()
	defer l.mu.Unlock()
	acc := l.accounts[a]
	if acc == nil {
		acc = &account{}
		l.accounts[a] = acc
	}
	acc.limit = total
	l.advance()
}

// Spent returns what an account has spent; zero for one that is not granted. What is reserved does not count.
func (l *Ledger) Spent(a Account) Amount {
	l.mu.Lock()
	defer l.mu.Unlock()
	if acc := l.accounts[a]; acc != nil {
		return acc.spent
	}
	return Amount{}
}

// Drop forgets an account. Requests that wait for it are refused; those under way end without it.
func (l *Ledger) Drop(a Account) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.accounts, a)
	l.advance()
}

// check returns ErrNoAccount for the first account that is not granted, and whether any limits money.
func (l *Ledger) check(accounts []Account) (money bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range accounts {
		acc := l.accounts[a]
		if acc == nil {
			return false, fmt.Errorf("account %s: %w", a, ErrNoAccount)
		}
		money = money || acc.limit.Micros != Unlimited
	}
	return money, nil
}

// reserve waits until the request may begin. The error is a *BudgetError, one that wraps ErrNoAccount, or the cause of ctx.
func (l *Ledger) reserve(ctx context.Context, accounts []Account, a demand) (*reservation, error) {
	w := &waiter{accounts: accounts, demand: a, answer: make(chan answer, 1)}
	l.mu.Lock()
	l.queue = append(l.queue, w)
	l.advance()
	l.mu.Unlock()
	select {
	case got := <-w.answer:
		return got.reservation, got.err
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case got := <-w.answer: // it was answered meanwhile
		if got.reservation != nil {
			got.reservation.end(Amount{})
		}
	default:
		l.queue = slices.DeleteFunc(l.queue, func(o *waiter) bool { return o == w })
		l.advance()
	}
	return nil, context.Cause(ctx)
}

// advance answers what need not wait any more. A request that waits for an account keeps later ones from it, so that
// small ones do not starve a large one. Called with mu held after every change.
func (l *Ledger) advance() {
	var wanted map[Account]bool
	waiting := l.queue[:0]
	for _, w := range l.queue {
		blocked := slices.ContainsFunc(w.accounts, func(a Account) bool { return wanted[a] })
		r, short, err := l.try(w, blocked)
		if r != nil || err != nil {
			w.answer <- answer{r, err}
			continue
		}
		if wanted == nil {
			wanted = map[Account]bool{}
		}
		if blocked {
			short = w.accounts // it comes before whoever comes after it
		}
		for _, a := range short {
			wanted[a] = true
		}
		waiting = append(waiting, w)
	}
	clear(l.queue[len(waiting):])
	l.queue = waiting
}

// try reserves for w, or returns the accounts that it waits for, or why it is refused. A blocked one is only refused.
func (l *Ledger) try(w *waiter, blocked bool) (r *reservation, short []Account, err error) {
	left, whole := Amount{Unlimited, Unlimited}, Amount{Unlimited, Unlimited} // beside others, and without them
	for _, name := range w.accounts {
		acc := l.accounts[name]
		if acc == nil {
			return nil, nil, fmt.Errorf("account %s: %w", name, ErrNoAccount)
		}
		if acc.spent.Tokens >= acc.limit.Tokens || acc.spent.Micros >= acc.limit.Micros {
			return nil, nil, &BudgetError{Account: name, Spent: acc.spent, Limit: acc.limit}
		}
		left = left.least(acc.limit.minus(acc.spent).minus(acc.reserved))
		whole = whole.least(acc.limit.minus(acc.spent))
	}
	if blocked {
		return nil, nil, nil
	}
	// Beside others if it can be, alone where it must be.
	output := w.demand.fit(w.demand.input, left)
	alone := w.demand.fit(w.demand.input, whole) < w.demand.least
	if alone {
		output = w.demand.least
	}
	worst := w.demand.at(max(output, w.demand.least))
	beside := Amount{Unlimited, Unlimited} // left in the accounts where others may run, too
	for _, name := range w.accounts {
		acc := l.accounts[name]
		rest := acc.limit.minus(acc.spent).minus(acc.reserved)
		fits := worst.within(rest)
		if fits {
			beside = beside.least(rest)
		}
		fitsAlone := worst.within(acc.limit.minus(acc.spent))
		if acc.alone != nil || !fits && (fitsAlone || acc.running > 0) {
			short = append(short, name)
		}
	}
	if len(short) > 0 {
		return nil, short, nil
	}
	if alone {
		output = max(w.demand.fit(w.demand.estimate, whole), w.demand.floor)
		output = min(output, w.demand.fit(w.demand.input, beside)) // which is at most what was asked for
		worst = w.demand.at(output)
	}
	r = &reservation{ledger: l, output: output, alone: alone, held: make([]Amount, len(w.accounts))}
	for i, name := range w.accounts {
		acc := l.accounts[name]
		r.accounts = append(r.accounts, acc)
		rest := acc.limit.minus(acc.spent).minus(acc.reserved)
		if r.held[i] = worst; !worst.within(rest) {
			acc.alone, r.held[i] = r, worst.least(rest)
		}
		acc.reserved = acc.reserved.plus(r.held[i])
		acc.running++
	}
	if l.observe != nil {
		l.observe(r, false, Amount{})
	}
	return r, nil, nil
}

// settle books what the request has spent in place of what it had reserved, once.
func (r *reservation) settle(spent Amount) {
	r.ledger.mu.Lock()
	defer r.ledger.mu.Unlock()
	r.end(spent)
}

func (r *reservation) end(spent Amount) {
	if r.settled {
		return
	}
	r.settled = true
	if r.ledger.observe != nil {
		r.ledger.observe(r, true, spent)
	}
	for i, acc := range r.accounts {
		acc.reserved = acc.reserved.minus(r.held[i])
		acc.running--
		acc.spent = acc.spent.plus(spent)
		if acc.alone == r {
			acc.alone = nil
		}
	}
	r.ledger.advance()
}
