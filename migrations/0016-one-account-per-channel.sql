-- A channel is one account of its organization. Two accounts with one channel id came from running `setup` twice, and
-- `accounts apply` could not say which one a line is about.

-- Accounts that have the channel id of an older one already keep it and are left out of the index by their ids, so that no upgrade
-- stops for them. Nothing new can join them. `doctor` names them.
do $$
declare
  later bigint[] := array(
    select a.id from official_account a
     where a.channel_id <> ''
       and exists (select from official_account first
                    where first.organization_id = a.organization_id and first.channel_id = a.channel_id and first.id < a.id)
     order by a.id);
begin
  execute format(
    'create unique index if not exists official_account_channel on official_account (organization_id, channel_id) where channel_id <> ''''%s',
    case when later = '{}' then '' else format(' and id <> all (%L::bigint[])', later) end);
end $$;
