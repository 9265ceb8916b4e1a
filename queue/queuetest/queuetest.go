// Package queuetest holds the suite that every queue.Store must pass: one file
// per promise of the contract, and a comparison with a naive store in memory
// under random use.
//
// In comes a function that opens the store to be tested in a folder; opened
// again on the same folder it must find what was there. Times are whole
// milliseconds, so that a store may keep them as coarsely as that.
package queuetest

import (
	"testing"

	"github.com/agentsched/agentsched/queue"
)

// Run tests the store that open opens. The suite closes each store before it
// opens the next on the same folder.
func Run(t *testing.T, open func(t *testing.T, dir string) queue.Store) {
	promises := []struct {
		name string
		test func(*env)
	}{
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
		{"ClaimScopes", claimScopes},
		{"ClaimNone", claimNone},
		{"ChooserOrder", chooserOrder},
		{"ChooserSkips", chooserSkips},
		{"ChooserHeads", chooserHeads},
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
		{"ReclaimAll", reclaimAll},
		{"ReclaimLease", reclaimLease},
		{"ReclaimFences", reclaimFences},
		{"Rebase", rebase},
		{"ReclaimStates", reclaimStates},
		{"ReclaimCancelled", reclaimCancelled},
		{"EventsOnce", eventsOnce},
		{"EventsCursor", eventsCursor},
		{"EventsConcurrently", eventsConcurrently},
		{"ListFilters", listFilters},
		{"ListPages", listPages},
		{"ListSince", listSince},
		{"DeadLetters", deadLetters},
		{"DeadLetterRequeue", deadLetterRequeue},
		{"DeadLetterShared", deadLetterShared},
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
		{"Prune", prune},
		{"PruneDeadLetters", pruneDeadLetters},
		{"PruneKeepsWhatIsPointedTo", pruneKeeps},
		{"PruneMax", pruneMax},
		{"PruneEvents", pruneEvents},
		{"KeeperCompact", keeperCompact},
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
	for _, p := range promises {
		t.Run(p.name, func(t *testing.T) { p.test(newEnv(t, open)) })
	}
	t.Run("Model", func(t *testing.T) { model(t, open) })
}
