// Package queuetest holds the suite that every queue.Store must pass: one file
// per promise of the contract, and a comparison with a naive store in memory
// under random use.
//
// In comes a function that opens the store to be tested in a folder; opened
// again on the same folder it must find what was there. Times are whole
// milliseconds, so that a store may keep them as coarsely as that.
package queuetest

import (
	"slices"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/queue"
)

// Run tests the store that open opens. Where a test does not say that a
// store is deposed, it is closed before the next is opened on the same folder.
func Run(t *testing.T, open func(t *testing.T, dir string) queue.Store) {
	for _, p := range promises() {
		t.Run(p.name, func(t *testing.T) { p.test(newEnv(t, open)) })
	}
	t.Run("Model", func(t *testing.T) { model(t, open) })
}

// Sample tests one of every so many promises, and those whose names begin like one of
// always: for a store that is opened slowly, and whose decisions are those of another one
// that is tested whole.
func Sample(t *testing.T, every int, always []string, open func(t *testing.T, dir string) queue.Store) {
	for i, p := range promises() {
		if i%every == 0 || slices.ContainsFunc(always, func(begin string) bool { return strings.HasPrefix(p.name, begin) }) {
			t.Run(p.name, func(t *testing.T) { p.test(newEnv(t, open)) })
		}
	}
}

type promise struct {
	name string
	test func(*env)
}

func promises() []promise {
	return []promise{
		{"EnqueueKeepsWhatWasAsked", enqueueKeeps},
		{"EnqueueAllOrNone", enqueueAllOrNone},
		{"EnqueueDuplicates", enqueueDuplicates},
		{"EnqueueConcurrently", enqueueConcurrently},
		{"ClaimOrder", claimOrder},
		{"ClaimInvisible", claimInvisible},
		{"ClaimExpires", claimExpires},
		{"ClaimAdmit", claimAdmit},
		{"ClaimOneBatch", claimOneBatch},
		{"ClaimNextAt", claimNextAt},
		{"ClaimCount", claimCount},
		{"ClaimCountBound", claimCountBound},
		{"ClaimNeverTwice", claimNeverTwice},
		{"ClaimScopes", claimScopes}, {"ClaimSetPrivate", claimSetPrivate},
		{"ClaimNone", claimNone},
		{"ClaimIDs", claimIDs},
		{"ClaimIDsOfBatch", claimIDsOfBatch},
		{"HeadsTold", headsTold},
		{"HeadsQuiet", headsQuiet},
		{"HeadsOfLines", headsOfLines},
		{"HeadsOfBatches", headsOfBatches},
		{"HeadsPages", headsPages},
		{"HeadsExpire", headsExpire},
		{"HeadsOver", headsOver},
		{"HeadsWhole", headsWhole},
		{"HeadsRefuses", headsRefuses},
		{"HeadsWatch", headsWatch},
		{"HeadsTogether", headsTogether},
		{"DuplicateKeys", duplicateKeys},
		{"DuplicateReject", duplicateReject},
		{"DuplicateCoalesce", duplicateCoalesce},
		{"DuplicateHeir", duplicateHeir},
		{"DuplicateFollowerLeaves", duplicateFollowerLeaves},
		{"DuplicateLatestWins", duplicateLatestWins},
		{"DuplicateNoWayBack", duplicateNoWayBack},
		{"DuplicateSerialize", duplicateSerialize},
		{"DuplicateBatches", duplicateBatches},
		{"DuplicateDurable", duplicateDurable},
		{"FenceGrows", fenceGrows},
		{"FenceRefusesTheOld", fenceRefusesTheOld},
		{"FinishOnce", finishOnce},
		{"FinishConcurrently", finishConcurrently},
		{"ExtendLease", extendLease},
		{"ApplyAllOrNothing", applyAllOrNothing},
		{"ApplyOrder", applyOrder},
		{"EndAllOrNothing", endAllOrNothing},
		{"BeginRules", beginRules},
		{"MoveRules", moveRules},
		{"FinishRules", finishRules},
		{"ReleaseRules", releaseRules},
		{"Retry", retry},
		{"LostAttempts", lostAttempts},
		{"RefusedForGood", refusedForGood},
		{"UsageSums", usageSums},
		{"CancelQueued", cancelQueued},
		{"CancelDispatched", cancelDispatched},
		{"CancelTerminal", cancelTerminal},
		{"CancelKey", cancelKey},
		{"ReclaimHolders", reclaimHolders},
		{"ReclaimLost", reclaimLost},
		{"ReclaimLease", reclaimLease},
		{"ReclaimFences", reclaimFences},
		{"Rebase", rebase},
		{"ReclaimStates", reclaimStates},
		{"ReclaimCancelled", reclaimCancelled},
		{"EpochRefusesTheOld", epochRefusesTheOld},
		{"EpochUnderWrites", epochUnderWrites},
		{"SweepLeases", sweepLeases},
		{"SweepAfterCrash", sweepAfterCrash},
		{"SweepDeposed", sweepDeposed},
		{"SweepDeadlines", sweepDeadlines},
		{"EventsOnce", eventsOnce},
		{"EventsCursor", eventsCursor},
		{"EventsConcurrently", eventsConcurrently},
		{"ListFilters", listFilters},
		{"ListRuns", listRuns},
		{"ListPages", listPages},
		{"ListSince", listSince},
		{"ListSearch", listSearch},
		{"ChangesTold", changesTold},
		{"ChangesTogether", changesTogether},
		{"PageCursor", pageCursor},
		{"PageRefuses", pageRefuses},
		{"PageChanges", pageChanges},
		{"PageConcurrently", pageConcurrently},
		{"Census", censusCounts},
		{"Throughput", throughputCounts},
		{"Runs", runsWithin},
		{"DeadLetters", deadLetters},
		{"DeadLetterRequeue", deadLetterRequeue},
		{"DeadLetterShared", deadLetterShared},
		{"ContinuesOnce", continuesOnce},
		{"ContinuesStay", continuesStay},
		{"LedgerOnce", ledgerOnce},
		{"LedgerOutcome", ledgerOutcome},
		{"LedgerPrice", ledgerPrice},
		{"LedgerLost", ledgerLost},
		{"LedgerDimensions", ledgerDimensions},
		{"LedgerDays", ledgerDays},
		{"LedgerShared", ledgerShared},
		{"GrantBounds", grantBounds},
		{"GrantWindow", grantWindow},
		{"GrantDead", grantDead},
		{"GrantRules", grantRules},
		{"CreditTakes", creditTakes},
		{"CreditGivesBack", creditGivesBack},
		{"CreditHeads", creditHeads},
		{"CreditRules", creditRules},
		{"CreditHistory", creditHistory},
		{"CreditConserved", creditConserved},
		{"Prune", prune},
		{"PruneDeadLetters", pruneDeadLetters},
		{"PruneKeepsWhatIsPointedTo", pruneKeeps},
		{"PruneMax", pruneMax},
		{"PruneEvents", pruneEvents},
		{"KeeperCompact", keeperCompact},
		{"KeeperParcels", keeperParcels},
		{"KeeperBackup", keeperBackup},
		{"KeeperBackupUnderWrites", keeperBackupUnderWrites},
		{"KeeperCheck", keeperCheck},
		{"HoldOutOfLane", holdOutOfLane},
		{"HoldHead", holdHead},
		{"HoldRules", holdRules},
		{"HoldExpires", holdExpires},
		{"HoldPools", holdPools},
		{"HoldLine", holdLine},
		{"HoldRebase", holdRebase},
		{"ConcludeEnds", concludeEnds},
		{"SpawnOnce", spawnOnce},
		{"AwaitWaits", awaitWaits},
		{"AwaitRules", awaitRules},
		{"DecideRejects", decideRejects},
		{"DecideOnce", decideOnce},
		{"DecideShares", decideShares},
		{"WithdrawAsked", withdrawAsked},
		{"JournalOnce", journalOnce},
		{"JournalOrder", journalOrder},
		{"JournalErase", journalErase},
		{"JournalTogether", journalTogether},
		{"JournalConcurrently", journalConcurrently},
		{"PruneRecords", pruneRecords},
		{"PruneJoined", pruneJoined},
		{"BatchWorkflow", batchWorkflow},
		{"Batches", batches},
		{"UnknownIDs", unknownIDs},
		{"CancelledContext", cancelledContext},
		{"Closed", closed},
		{"Reopen", reopen},
	}
}
