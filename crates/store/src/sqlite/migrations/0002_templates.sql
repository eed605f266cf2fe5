-- Templates of tenants' own, and the builds they come of.

CREATE TABLE builds (
    seq        INTEGER PRIMARY KEY,
    id         TEXT NOT NULL UNIQUE,
    tenant     TEXT NOT NULL,
    name       TEXT NOT NULL,
    status     TEXT NOT NULL,
    error      TEXT,
    replace    INTEGER NOT NULL,
    source     TEXT NOT NULL,
    image_ref  TEXT,
    disk_mib   INTEGER NOT NULL,
    cpus       INTEGER NOT NULL,
    memory_mib INTEGER NOT NULL,
    attempts   INTEGER NOT NULL,
    bytes      INTEGER,
    created_ms INTEGER NOT NULL,
    started_ms INTEGER,
    ended_ms   INTEGER
) STRICT;
CREATE INDEX builds_of_tenant ON builds (tenant, created_ms);
CREATE INDEX builds_to_do ON builds (seq) WHERE ended_ms IS NULL;

CREATE TABLE templates (
    seq        INTEGER PRIMARY KEY,
    build      TEXT NOT NULL UNIQUE,
    tenant     TEXT NOT NULL,
    name       TEXT NOT NULL,
    disk_mib   INTEGER NOT NULL,
    cpus       INTEGER NOT NULL,
    memory_mib INTEGER NOT NULL,
    config     TEXT NOT NULL,
    digest     TEXT NOT NULL,
    bytes      INTEGER NOT NULL,
    image_ref  TEXT,
    created_ms INTEGER NOT NULL,
    UNIQUE (tenant, name)
) STRICT;
