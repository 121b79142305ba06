-- Some providers give new tables to other roles by default privileges: those of Supabase let the roles of a public web API read and change
-- every table of the schema public. Secrets and members are only for roles that an administrator names.

-- Revokes what default privileges gave to roles other than the owner, from the tables with their partitions and sequences. The same rights,
-- if an administrator also granted them, cannot be told apart and end too. Other rights stay. Call it in the transaction that creates a table.
create function revoke_default_privileges(tables regclass[]) returns void language plpgsql as $$
declare
  given record;
begin
  for given in
    with recursive relation (id) as (
      select unnest(tables)::oid
       union
      select d.objid
        from pg_depend d join relation r on d.refobjid = r.id
        join pg_class c on c.oid = d.objid
       -- Partitions and the sequences of identity columns depend on their table.
       where d.classid = 'pg_class'::regclass and d.refclassid = 'pg_class'::regclass and d.deptype in ('a', 'i') and c.relkind in ('r', 'p', 'S')
    )
    select c.oid::regclass as relation, case c.relkind when 'S' then 'sequence' else 'table' end as kind, a.grantee,
           string_agg(distinct a.privilege_type, ', ') as privileges
      from relation join pg_class c on c.oid = relation.id
      join pg_default_acl d on d.defaclrole = c.relowner and d.defaclnamespace in (0, c.relnamespace)
                           and d.defaclobjtype = case c.relkind when 'S' then 'S'::"char" else 'r' end
     cross join aclexplode(d.defaclacl) a
     where a.grantee <> c.relowner
     group by c.oid, c.relkind, a.grantee
  loop
    execute format('revoke %s on %s %s from %s cascade', given.privileges, given.kind, given.relation,
                   case given.grantee when 0 then 'public' else given.grantee::regrole::text end);
  end loop;
end $$;

select revoke_default_privileges(array[
  'schema_migration', 'schema_function',
  'organization', 'official_account', 'retired_address', 'api_client', 'api_key', 'unrecorded_revocation', 'delivery_hour', 'account_check',
  'account_day', 'change_mark', 'change_server', 'audience_member', 'tracked_activity', 'segment', 'line_audience', 'audience_tag',
  'member_edit', 'erased_member', 'erased_person', 'pending_erasure', 'database_restore', 'pending_reapply', 'event_key', 'event',
  'kept_delivery', 'stored_event', 'tracking_event', 'unsent_message', 'endpoint', 'endpoint_answer', 'endpoint_attempt', 'endpoint_delivery', 'operator',
  'operator_session', 'activity', 'job', 'changed_account', 'job_file', 'notification_channel', 'notification', 'notification_account',
  'notification_watch']::regclass[]);

-- Another program that may write official_account needs no right on this table.
do $$ begin
  execute format('alter function retire_addresses() security definer set search_path = %I, pg_temp', current_schema());
end $$;
