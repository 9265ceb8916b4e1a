-- class is job.Spec.Class. The other columns hold ids of entries, '' none:
-- an entry with a key stands in the line of its tenant and key, see
-- duplicate.go. Only queued entries have a waits_for.
ALTER TABLE entries ADD COLUMN class          TEXT NOT NULL DEFAULT 'standard';
ALTER TABLE entries ADD COLUMN key            TEXT NOT NULL DEFAULT '';
ALTER TABLE entries ADD COLUMN waits_for      TEXT NOT NULL DEFAULT '';
ALTER TABLE entries ADD COLUMN coalesced_with TEXT NOT NULL DEFAULT '';
ALTER TABLE entries ADD COLUMN superseded_by  TEXT NOT NULL DEFAULT '';

-- What a claim reads: without those that wait for another entry, and with the
-- class, by which a claim counts.
DROP INDEX entries_claim;
DROP INDEX entries_claim_batch;
CREATE INDEX entries_claim ON entries (priority DESC, runnable_at, id, class) WHERE state = 'queued' AND waits_for = '';
CREATE INDEX entries_claim_batch ON entries (batch, priority DESC, runnable_at, id, class) WHERE state = 'queued' AND waits_for = '';

-- The lines, and who waits in them: for an entry, and of a batch.
CREATE INDEX entries_line ON entries (tenant, key, coalesced_with, seq) WHERE key <> '' AND state IN ('queued', 'dispatched');
CREATE INDEX entries_waiting ON entries (waits_for, seq) WHERE waits_for <> '';
CREATE INDEX entries_waiting_batch ON entries (batch, tenant, key) WHERE waits_for <> '';

-- What a list can ask for.
CREATE INDEX entries_ended ON entries (completed_at) WHERE completed_at IS NOT NULL;
CREATE INDEX entries_coalesced ON entries (coalesced_with) WHERE coalesced_with <> '';
CREATE INDEX entries_superseded ON entries (superseded_by) WHERE superseded_by <> '';
