-- A file may lie in a bucket (fleet.artifacts): object is its key there and sha256 that of
-- the content; '' where it lies in artifact_pieces, as all files of older programs do.
ALTER TABLE artifacts
    ADD COLUMN object text  NOT NULL DEFAULT '',
    ADD COLUMN sha256 bytea NOT NULL DEFAULT '';
CREATE INDEX artifacts_object ON artifacts (object) WHERE object <> '';
