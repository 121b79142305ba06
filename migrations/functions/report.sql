-- The follows and unfollows of an account, for the days of the report. A repeatable file: see CONTRIBUTING.md.
--
-- `kind` is 'new', 'return' or 'block'. An erased event keeps its kind and time, without a person or a payload: an erased return counts as
-- new. The payload is not cast to jsonb, which refuses some texts that LINE may send. An event of a day that has not begun waits for it.
create or replace function follow_events(account bigint, since date)
  returns table (user_id text, day date, kind text, is_blocked_within_7_days boolean) language plpgsql stable as $$
begin
  return query
  select f.user_id, (f.occurred_at at time zone 'UTC' + interval '9 hours')::date, f.kind,
         f.kind = 'new' and f.user_id is not null and f.next_block <= f.occurred_at + interval '7 days'
    from (select e.user_id, e.occurred_at,
                 case when e.kind = 'unfollow' then 'block'
                      when e.payload ~ '"follow"\s*:\s*\{[^{}]*"isUnblocked"\s*:\s*true' then 'return'
                      else 'new' end as kind,
                 min(e.occurred_at) filter (where e.kind = 'unfollow')
                   over (partition by e.user_id order by e.occurred_at, e.kind rows between 1 following and unbounded following) as next_block
            from event e
           where e.channel_oa_id = account and e.kind in ('follow', 'unfollow') and e.source = 'line' and e.failure is null
             and e.occurred_at >= since::timestamp at time zone 'UTC' - interval '9 hours'
             and e.occurred_at < date_trunc('day', now() at time zone 'UTC' + interval '9 hours') at time zone 'UTC' + interval '15 hours') f;
end $$;
