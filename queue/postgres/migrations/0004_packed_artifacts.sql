-- A piece is compressed by itself (gzip) where that makes it smaller.
ALTER TABLE artifact_pieces ADD COLUMN packed boolean NOT NULL DEFAULT false;
