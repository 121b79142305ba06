-- An account has at most 20 endpoints, so a flush stores the rows of all of them: 20 rows take 0.3 ms.

drop table endpoint_fan_out;

-- Concurrent inserts for one account wait for each other, so that each counts the rows of the others.
create function refuse_too_many_endpoints() returns trigger language plpgsql as $$
begin
  perform from official_account where id = new.channel_oa_id for no key update;
  if (select count(*) from endpoint where channel_oa_id = new.channel_oa_id) > 20 then
    raise exception 'account % has 20 endpoints already', new.channel_oa_id
      using errcode = 'check_violation', table = 'endpoint', constraint = 'endpoint_max_per_account';
  end if;
  return null;
end $$;
create constraint trigger endpoint_max_per_account after insert or update of channel_oa_id on endpoint
  for each row execute function refuse_too_many_endpoints();
