-- What an entry goes on from, what goes on from it, in whose folder it works, and of what
-- it began as a copy: ids of entries, '' none.
ALTER TABLE entries ADD COLUMN continues TEXT NOT NULL DEFAULT '';
ALTER TABLE entries ADD COLUMN continued_as TEXT NOT NULL DEFAULT '';
ALTER TABLE entries ADD COLUMN folder TEXT NOT NULL DEFAULT '';
ALTER TABLE entries ADD COLUMN forked_from TEXT NOT NULL DEFAULT '';
