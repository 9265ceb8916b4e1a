-- Folders of submitters, by content: whoever leads gives them to cores, see package
-- parcel. size is of all pieces together, on_digest '' for one that builds on no other.
CREATE TABLE parcels (
    digest     text        PRIMARY KEY,
    repository text        NOT NULL,
    on_digest  text        NOT NULL,
    base       text        NOT NULL,
    commit_id  text        NOT NULL,
    size       bigint      NOT NULL,
    used       timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX parcels_repository ON parcels (repository, used);

-- Each piece but the last has 512 KiB.
CREATE TABLE parcel_pieces (
    digest text    NOT NULL REFERENCES parcels ON DELETE CASCADE,
    number integer NOT NULL,
    data   bytea   NOT NULL,
    PRIMARY KEY (digest, number)
);
ALTER TABLE parcel_pieces ALTER COLUMN data SET STORAGE EXTERNAL;
