-- What a restored backup must not repeat: ids of members, and change numbers. See docs/decisions/0043-ids-after-a-restore.md
-- and migrations/functions/restores.sql.

-- The server whose transaction ids the change numbers follow: see raise_change_offset(). A dump brings this row to another
-- server, which has another identifier. A physical copy has the same identifier, and the same transaction ids.
create table change_server (
  is_only_row boolean primary key default true check (is_only_row),
  system_identifier bigint not null
);
