// Package schedule decides what happens to jobs: which queued job runs next and on which
// core, what follows from an answer, a stop, an end or a death, and what each core has to
// know of the others.
//
// Machine is a pure state machine. It has no lock, no clock, no goroutine and does no
// I/O. Events go in with the time at which they happened; what is to be done comes out
// as data:
//
//	             ┌──────────────────────── Machine ────────────────────────┐
//	events ────► │ lanes (heads read) ─► policy.Next ─► room? ─► claim     │ ────► Ready
//	             │ flights: claimed ─► permit ─► begun ─► running ─► ended │
//	             └─────────────────────────────────────────────────────────┘
//	changed lanes, heads, claims, answers of cores,        heads to read, jobs to claim,
//	events and ends of runs, stops, settings,              ops to commit, calls to make,
//	cores, isolations                                      what to tell, when to wake up
//
// Its owner calls Step from one goroutine, does what the Ready says, and feeds the
// results back as events, in the order in which they were asked for. The same events
// at the same times always give the same answers; no answer depends on the order of a
// Go map.
//
// Invariants, after each Step:
//
//	jobs in flight <= slots                       unless slots were taken away meanwhile
//	jobs on a host <= its slots, its memory       likewise
//	a job is in flight at most once
//	slots are free => each runnable head was refused for a reason that only an event
//	                  can change, or its lane is being read
//
// Everything in a Machine can be built again from the store: it holds the heads of
// lanes, the jobs in flight and what bounds them. After a crash a new Machine is fed
// what the store holds and decides the same.
//
// # Reading
//
// The store gives each lane a version and raises it in the transaction that changes
// the lane. A machine remembers the version up to which it has read, per scope. When
// Changed says that there may be news, it asks for the lanes that are newer, with their
// first heads. An answer replaces what was known of a lane. Further heads are read in
// pages that double, and only when the known ones were passed over. At most one read of
// a scope is under way; what changes meanwhile is read afterwards.
//
// # Choosing
//
// While slots are free, the policy names a lane, and the head of that lane is claimed if
// there is room for it. Nothing is chosen while a read is under way that may bring a job
// whose turn comes earlier: one that went back to its lane keeps its turn, and a job of
// a higher priority does not come second because it was read second.
//
// # Passing over
//
// A head for which there is no room (its workspace is taken, its tenant or its kind of
// worker is at its limit, its grant is used up, an isolation refused it, no node that suits it
// has room) stays in its
// lane, and the machine goes on behind it. Each event that may make room, among them
// the end of any flight, makes the machine look at every such head again, in its old
// order. This is why nothing starves: a head is passed over only as long as it could not
// run, and never because of one that came later. Maintenance needs a folder for itself
// alone, which a stream of small jobs would never leave; it reserves the folder instead.
//
// # Time
//
// at, the first argument of Step, is the only clock. What is stored (deadlines, times at
// which jobs become runnable) is compared with its wall reading; ends of isolations with
// its monotonic reading, so that a wall clock that is set does not end or prolong them.
// Ready.Wake says when time alone makes a difference.
//
// # Costs
//
// A Step costs what its events touch: reading n heads costs n, choosing a job one Next of
// the policy and a look at two numbers of each host that satisfies it, and an event that makes
// room as many heads as were passed over, of which at most maxPassed in each lane are in memory.
// Heads that require the same share one look: once none of their hosts has room, none is looked
// at for them until a flight ends or the hosts change.
//
// # Flights
//
// A job is in flight from the moment it is chosen until the end of its claim is committed.
// Every decision about it is one Work, whose ops stand or fall together, and the next one
// waits for its answer. What happens meanwhile (a cancel, the death of its core, its end) is
// kept and taken into account then. So an end that comes before the answer to a submission is
// recorded after it, and a cancel that comes while an attempt is being recorded reaches the
// core right after that.
//
// # Refusals
//
// A core that refuses a permit has made no attempt: the claim is released. What follows
// depends on the reason, the first row that applies:
//
//	reason                               what follows
//	LIMIT_EXCEEDED and other final ones  the job is a dead letter (BUDGET)
//	action "degrade"                     the next choice of the job is asked for at once, for this
//	                                     attempt; without one, as below
//	CIRCUIT_OPEN, or its kind of worker  the job goes on with its next choice at once, and for good;
//	is isolated                          without one, as below
//	an isolation touches the job         it is parked: not claimed again while that isolation lasts
//	load, isolation, busy workspace      it is tried again when the core said, after 5 s at the latest,
//	                                     since an operator or another job may end that at any time
//	any other                            it is tried again when the core said
//	no answer                            it is tried again after 200 ms; what the core was told of the
//	                                     others is told again
//
// # Ends
//
// An attempt ends with the outcome that its core reports, or with the death of its core. The
// first row that applies says what is recorded:
//
//	it stopped at a step's boundary      queued again, in its place, with its steps; does not count
//	the job was cancelled                completed as cancelled, unless the run succeeded all the same
//	its permit was not known any more    queued again after 1 s, 2 s, 4 s …; does not count; after ten
//	                                     in a row a dead letter (RESOURCE_EXHAUSTED)
//	we cut it short: the scheduler ends, queued again, in its place, with its session; does not count
//	its core is replaced, a Stop
//	a usage limit is reached             its kind of worker is put out of use first (Park), then as below
//	a person has to look at the work     Config.Await says so, and what they decide follows
//	all others                           policy.Retry decides: completed, queued again, dead letter
//
// A core that dies counts as a CRASH of the attempt, since the job may be what kills it. Its
// usage is then what its events told.
//
// # Stops
//
// Where a run stands when it is asked to stop decides what happens:
//
//	phase                    cancelled (Withdraw)     stopped (Interrupt, AtOnce, Boundary)
//	being claimed, prepared, its claim ends, and the  its claim ends and the job is queued again; the
//	asking for a permit      job with it; the permit  permit expires unused
//	                         expires unused
//	being recorded           asked of the core right after its submission was answered
//	running                  asked of the core
//	closing                  nothing is left to stop; a cancelled job whose attempt failed ends as
//	                         cancelled, unless what follows was decided before
//
// Boundary and OnlyBoundary ask the core for a checkpoint first. A worker that keeps no steps
// cannot give one: Boundary then becomes Interrupt, OnlyBoundary leaves the run alone. Stops of
// one run are asked one after the other, a cancellation before all others.
//
// # Transitions
//
// A flight is in one phase. The rows are what comes in, the columns the phase in which it finds
// the flight; "kept" is taken into account by the transition that comes next, "-" cannot come or
// is ignored:
//
//	             claiming    preparing   asking      beginning   running     closing
//	Claimed      preparing   -           -           -           -           -
//	  without it gone        -           -           -           -           -
//	Done         -           asking      beginning   running     running     gone
//	  refused    -           closing     closing     closing     running     -
//	  not stored -           -           -           gone        gone        gone
//	RunEvent     -           -           -           kept        running     kept
//	Ended        -           kept        kept        kept        closing     -
//	CoreGone     -           kept        kept        kept        closing     -
//	Stop         kept        kept        kept        kept        running     -
//	Withdraw     kept        kept        kept        kept        running     kept
//	Hold         kept        kept        kept        kept        -           -
//
// Preparing is left out by a job with nothing to prepare. A flight that is kept from beginning
// goes from preparing or asking to closing. A Stop of a batch does not concern what is being
// claimed (Hold does), and OnlyBoundary nothing before beginning, which has no step yet, but with Unbegun, which gives such a job
// back; so is one whose node was cordoned or isolated while it was claimed. A Work that is under way while running makes the
// other events wait for its answer. Closing takes two Works for a stage that streams (the stream
// first) and for a kind of worker that is put out of use (the isolation first).
//
// # One job's way
//
// From testdata/flights/way.txt: at a time comes an event, and the lines with an arrow are the
// Ready that the Step after it returns. A Work reads "JOB: ops call told what":
//
//	0s add a tenant=t
//	        → a: ask(core 1, shell, attempt 1)              its claim is committed: AskPermit
//	1s permit a
//	        → told a: permit
//	        → a: begin(1) submit(core 1, p-a) told begun    one Work: commit, call, tell
//	1s event a running                                      comes before the answer to submit,
//	1s done a                                               so it is told with the answer
//	        → told a: state
//	2s event a usage=0.5
//	        → told a: usage
//	        → a: append(2) move(running) told stored(2)     flushAfter has passed since the first
//	2s event a session=s1                                   that Work is under way: it is kept
//	        → told a: session
//	2200ms done a
//	        → a: append(1) move(s1) told stored(1)
//	3s event a text
//	        → told a: text
//	3s ended a completed                                    kept until the Work is answered
//	3s done a
//	        → a: append(1) finish(succeeded) told stored(1) told over
//
// The last answer, to the finish, ends the flight: its slot is free with the next Step.
//
// # Order
//
// What is durable, what is called and what is told of one job come in one order, and this is all
// that a listener or a core may rely on:
//
//	claim < begin < submit < events < stop < end < what follows from the end
//
// An event of a run may be told before it is stored, never after its attempt's end was told. A
// stop is asked of the core after its submission was answered. Between two jobs there is no order,
// except that a claim is committed after the reads that the choice was made by.
//
// # Room
//
// A head has room if each of these holds for the flights of now, and the first that does not
// is what the job waits for. L(x) is a limit, 0 is none; n counts flights:
//
//	slot       n(all) < Slots, and some host has room
//	grant      the store says that its owner has not used it up
//	isolation  none touches it, as far as it was refused by one before
//	worker     n(kind) < L(kind)
//	tenant     n(tenant) < L(tenant)
//	node       a host has room for it: see Placement
//	folder     n(real path) < L(real path), and no conflict by the table below
//
// Two paths overlap if one is the other or lies below it. Of two jobs whose workspaces overlap:
//
//	one \ the other    copy or worktree    directly    maintenance
//	copy or worktree   both                both        one
//	directly           both                one         one
//	maintenance        one                 one         one
//
// A job of type MAINTENANCE that waits reserves its folder: jobs that come later wait for it,
// but those of a workflow, which others of their batch wait for. Reservations are made anew at
// each look at what was passed over, so that they end with whoever made them.
//
// # Placement
//
// The cores of one Host share its slots and its memory. A core without one runs on the
// scheduler's own host, which is bounded by Bounds alone. A host has room for a job if all of
// this holds, with n(h) the flights chosen for it and m(j) the memory that job j asks for:
//
//	requirement  name, os, arch and labels are what the job requires
//	worker       its kind is there and logged in, and not isolated there (Out)
//	open         the host is neither cordoned nor isolated, and one of its cores takes work
//	slots        n(h) < min(Slots, Slots of h, what throttling cores of h allow)
//	memory       m(j) + sum of m(i) over the flights i of h <= Memory of h
//
// Where its kind is isolated on each host that else satisfies it, a job is given to one of them all
// the same, which refuses it: so it goes on with its next choice, or is parked.
//
// Of the hosts that have room, the first row that tells two of them apart decides:
//
//	session  the one that has the session that the job goes on with
//	mirror   the one that has a mirror of its repository
//	part     n(h) / slots of h: the least with Spread, the largest with Pack
//	core     the one whose core has the fewest flights
//	place    the one whose core has the lowest Index
//
// If the host of the session is there, and satisfies the job, but is full, cordoned, isolated or does not
// take work, the job waits for it, for sessionWait at most. After that, or at once if that host
// is gone, it is placed as any other. It goes on there with the files of its session, if the attempt that had it has
// left them (Elsewhere in ipc.SubmitJob), and starts over otherwise.
// An entry keeps its session together with the name of the host on which that lies. An attempt
// elsewhere that is cut short before it has done anything leaves both as they are.
//
// A flight keeps its host, which is chosen with it. Its core is chosen when its claim is
// committed; if none takes work by then, the claim is given back. A job that goes on with its
// next choice under load stays on its host, if that has the worker.
//
// Where no host has room the job waits for what may change the soonest:
//
//	its hosts                      reason
//	none satisfies the job         node: "no node has docker"
//	one is full                    slot: "all slots of nodes with docker are taken"
//	one is overloaded              load
//	one has too little memory      node: "no node has 4GiB free"
//	one takes no work now          node
//	one is isolated, no other open node: "node a is isolated"
//	all are cordoned               node: "node a is cordoned"
//
// # Giving way
//
// Runs that keep steps may be asked to stop between two of them, where all slots are taken. With
// S slots, and of a tenant t the share s(t) of the policy, w(t) jobs that would start and n(t)
// flights:
//
//	claim(t)  = min(w(t), ceil(s(t)*S) - n(t))   of a tenant with a contract, at least 0
//	excess(t) = n(t) - floor(s(t)*S)             of one without
//	asked now = sum of claim(t) - runs that stop already
//
// S is at most what the hosts have together. One run is asked for each, of a tenant with an
// excess, which asking makes less by one, and on a host that suits one of the jobs that would
// start. The least priority comes first, and then the one that began last, since it loses
// least. Before that, and within a tenant, the same is done for one job of a higher priority.
// Each run is asked once, and a job at most MaxYields times, so that every run makes one step at
// least and nobody is kept from an end.
//
// # Money
//
// Spendings are kept for the longest cost window, rounded up in time by a part's width (see
// spendings), so that a core that starts anew lets no limit be exceeded. What an attempt has told
// of its costs is booked when it is told, and the rest, if any, at its end; no money comes back.
// While earlier spendings are read, later ones are booked beside them: each counts once, whatever
// comes first.
//
// # Crashes
//
// The process may die after any part of a Work. What the next scheduler finds:
//
//	died after    of a begin                        of an end
//	nothing       a claim without an attempt: the   an attempt without an end: the claim is taken
//	              claim is taken back               back, the attempt is lost and does not count
//	the commit    an attempt that no core has: it   the end; followers that were not told look at
//	              is lost and does not count        every open batch at the start
//	the call      an attempt whose core stops its   -
//	              runs when its scheduler is gone
//	telling       as above                          as above, and listeners may hear of it twice
//
// # What its owner owes
//
// The machine believes what it is told, so the order of the owner's work matters:
//
//	for {
//		ready := machine.Step(now, events...)
//		read the heads   ─► HeadsRead     one for each of ready.Reads, in order
//		claim the jobs   ─► Claimed       one for each of ready.Claims, committed, after the reads
//		do the works     ─► Done          one for each of ready.Work: commit, call, tell
//		find the folders ─► FolderKnown   whenever they are known, never waited for
//		wait for further events, or for ready.Wake ─► Tick
//	}
//
// Claims are answered in the order in which they were asked for, several together where one was
// still being committed; reads may be answered before claims that were asked for earlier; works
// are answered in any order. An owner that has lost track (the store failed, another process
// wrote) tells Forget, and what is in flight stays in flight. The process may die between any two
// steps: the store has the claim with its lease, the next scheduler takes it back, and a new
// machine decides by what is stored.
package schedule
