-- Names of sandboxes, and where sandboxes and snapshots come from.

ALTER TABLE sandboxes ADD COLUMN name TEXT;
ALTER TABLE sandboxes ADD COLUMN ancestors TEXT NOT NULL DEFAULT '[]';
CREATE UNIQUE INDEX sandboxes_named ON sandboxes (tenant, name) WHERE name IS NOT NULL;

ALTER TABLE snapshots ADD COLUMN ancestors TEXT NOT NULL DEFAULT '[]';

-- The chain of those that exist already goes as far up as there are rows.
UPDATE sandboxes SET ancestors = (
    WITH RECURSIVE up (id, depth) AS (
        SELECT sandboxes.parent, 1
        UNION ALL
        SELECT above.parent, up.depth + 1 FROM up JOIN sandboxes AS above ON above.id = up.id
        WHERE above.parent IS NOT NULL AND up.depth < 50
    )
    SELECT json_group_array(id) FROM (SELECT id FROM up ORDER BY depth DESC)
) WHERE parent IS NOT NULL;
UPDATE snapshots SET ancestors = coalesce(
    (SELECT json_insert(sandboxes.ancestors, '$[#]', sandboxes.id) FROM sandboxes WHERE sandboxes.id = snapshots.sandbox),
    json_array(snapshots.sandbox)
);
