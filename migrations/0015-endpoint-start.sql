-- Nothing that was committed before an endpoint was added is sent to it. Its position in the feed of changes begins at the
-- horizon, which a long transaction of anybody holds back, so changes that were committed meanwhile are above it.

-- The numbers of the transactions that run now: what they change is not committed yet.
create function open_changes() returns bigint[] language sql stable
  return array(select 3 * id + change_offset() from txid_snapshot_xip(txid_current_snapshot()) as id);

-- Whether a change was committed after an endpoint was added. Each transaction has three numbers: see next_change().
create function is_committed_after(change bigint, first_change bigint, open_changes bigint[]) returns boolean
  language sql immutable parallel safe
  return change >= first_change or change - change % 3 = any (open_changes);

-- The endpoints of today receive everything above their position.
alter table endpoint
  -- Changes of transactions that began later have this number or a greater one.
  add column first_change bigint not null default 0,
  add column open_changes bigint[] not null default '{}';
alter table endpoint
  alter column first_change set default change_limit(),
  alter column open_changes set default open_changes();
