BEGIN;
-- Lists come newest first: by time, then by `seq`, which grows with every row.
-- Whole numbers of 64 bits without a sign are kept as the signed number of the same bits.

CREATE TABLE tenants (
    seq        INTEGER PRIMARY KEY,
    id         TEXT NOT NULL UNIQUE,
    name       TEXT NOT NULL,
    quota      TEXT,
    created_ms INTEGER NOT NULL
) STRICT;

CREATE TABLE tokens (
    seq        INTEGER PRIMARY KEY,
    hash       BLOB NOT NULL UNIQUE,
    prefix     TEXT NOT NULL UNIQUE,
    tenant     TEXT NOT NULL,
    label      TEXT NOT NULL,
    scope      TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    expires_ms INTEGER,
    revoked_ms INTEGER
) STRICT;
CREATE INDEX tokens_of_tenant ON tokens (tenant, created_ms);

CREATE TABLE sandboxes (
    seq           INTEGER PRIMARY KEY,
    id            TEXT NOT NULL UNIQUE,
    tenant        TEXT NOT NULL,
    standing      TEXT NOT NULL,
    template      TEXT NOT NULL,
    from_snapshot TEXT,
    parent        TEXT,
    tree          TEXT,
    fork_index    INTEGER,
    metadata      TEXT NOT NULL,
    env           TEXT NOT NULL,
    ports         TEXT NOT NULL,
    ttl_seconds   INTEGER NOT NULL,
    persistent    INTEGER NOT NULL,
    network       TEXT NOT NULL,
    volumes       TEXT NOT NULL,
    cpus          INTEGER NOT NULL,
    memory_mib    INTEGER NOT NULL,
    created_ms    INTEGER NOT NULL,
    used_ms       INTEGER NOT NULL,
    boot_ms       REAL,
    boot_mode     TEXT NOT NULL,
    timings       TEXT
) STRICT;
CREATE INDEX sandboxes_of_tenant ON sandboxes (tenant, created_ms);
CREATE INDEX sandboxes_of_tree ON sandboxes (tenant, tree, created_ms) WHERE tree IS NOT NULL;

-- What each tenant's sandboxes add up to, so that a quota is checked without counting them.
CREATE TABLE sandbox_totals (
    tenant     TEXT PRIMARY KEY,
    sandboxes  INTEGER NOT NULL,
    cpus       INTEGER NOT NULL,
    memory_mib INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TRIGGER sandboxes_added AFTER INSERT ON sandboxes BEGIN
    INSERT INTO sandbox_totals VALUES (new.tenant, 1, new.cpus, new.memory_mib)
    ON CONFLICT (tenant) DO UPDATE SET
        sandboxes = sandboxes + 1, cpus = cpus + new.cpus, memory_mib = memory_mib + new.memory_mib;
END;
CREATE TRIGGER sandboxes_removed AFTER DELETE ON sandboxes BEGIN
    UPDATE sandbox_totals SET
        sandboxes = sandboxes - 1, cpus = cpus - old.cpus, memory_mib = memory_mib - old.memory_mib
    WHERE tenant = old.tenant;
END;
CREATE TRIGGER sandboxes_resized AFTER UPDATE OF tenant, cpus, memory_mib ON sandboxes BEGIN
    SELECT raise(ABORT, 'owner and size of a sandbox are counted and do not change');
END;

CREATE TABLE snapshots (
    seq        INTEGER PRIMARY KEY,
    id         TEXT NOT NULL UNIQUE,
    tenant     TEXT NOT NULL,
    sandbox    TEXT NOT NULL,
    template   TEXT NOT NULL,
    parent     TEXT,
    size_bytes INTEGER NOT NULL,
    cpus       INTEGER NOT NULL,
    memory_mib INTEGER NOT NULL,
    created_ms INTEGER NOT NULL
) STRICT;
CREATE INDEX snapshots_of_tenant ON snapshots (tenant, created_ms);
CREATE INDEX snapshots_of_sandbox ON snapshots (tenant, sandbox, created_ms);

CREATE TABLE volumes (
    seq        INTEGER PRIMARY KEY,
    id         TEXT NOT NULL UNIQUE,
    tenant     TEXT NOT NULL,
    name       TEXT NOT NULL,
    standing   TEXT NOT NULL,
    size_mib   INTEGER NOT NULL,
    created_ms INTEGER NOT NULL,
    UNIQUE (tenant, name)
) STRICT;

-- `place` counts a sandbox's events, so that its oldest are found without counting; `seq` counts everybody's.
CREATE TABLE events (
    seq     INTEGER PRIMARY KEY,
    sandbox TEXT NOT NULL,
    place   INTEGER NOT NULL,
    tenant  TEXT NOT NULL,
    at_ms   INTEGER NOT NULL,
    kind    TEXT NOT NULL,
    payload TEXT,
    UNIQUE (sandbox, place)
) STRICT;

CREATE TABLE audit (
    seq        INTEGER PRIMARY KEY,
    at_ms      INTEGER NOT NULL,
    tenant     TEXT NOT NULL,
    token      TEXT NOT NULL,
    request_id TEXT NOT NULL,
    method     TEXT NOT NULL,
    path       TEXT NOT NULL,
    status     INTEGER NOT NULL
) STRICT;
CREATE INDEX audit_of_tenant ON audit (tenant, at_ms);

CREATE TABLE repls (
    seq        INTEGER PRIMARY KEY,
    sandbox    TEXT NOT NULL,
    id         TEXT NOT NULL,
    language   TEXT NOT NULL,
    handle     TEXT NOT NULL,
    cells      INTEGER NOT NULL,
    created_ms INTEGER NOT NULL,
    UNIQUE (sandbox, id)
) STRICT;

CREATE TABLE preview_key (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    key BLOB NOT NULL
) STRICT;

-- Rewritten by `sync`: a commit flushes the log to disk only when it has something to write.
CREATE TABLE sync_count (
    one   INTEGER PRIMARY KEY CHECK (one = 1),
    count INTEGER NOT NULL
) STRICT;
INSERT INTO sync_count VALUES (1, 0);

INSERT INTO tenants VALUES (1, 'a', 'Tenant a', NULL, 1);
INSERT INTO tokens VALUES (1, x'0101010101010101010101010101010101010101010101010101010101010101', 'pds_1', 'a', 'laptop',
    'write', 1, 99, NULL);
INSERT INTO sandboxes VALUES (1, 's1', 'a', 'creating', 'python', 'snap1', 'parent', NULL, 3, '{"purpose":"test"}',
    '{"API_KEY":"hunter2"}', '{"8080":"web"}', 300, 1, 'all', '[{"id":"vol1","name":"data","read_only":true}]', 2, 512,
    1, 1, 41.5, 'restore', '{"load":1}');
INSERT INTO snapshots VALUES (1, 'n1', 'a', 's1', 'python', NULL, 1099511627776, 2, 512, 1);
INSERT INTO volumes VALUES (1, 'v1', 'a', 'data', 'live', 100, 1);
INSERT INTO events VALUES (1, 's1', 1, 'a', 1, 'sandbox.running', '{"number":1}');
INSERT INTO audit VALUES (1, 1, 'a', 'pds_1', 'r1', 'POST', '/v1/sandboxes', 201);
INSERT INTO repls VALUES (1, 's1', 'main', 'python', '{}', 0, 1);
INSERT INTO preview_key VALUES (1, x'0707070707070707070707070707070707070707070707070707070707070707');
PRAGMA user_version = 1;
COMMIT;
