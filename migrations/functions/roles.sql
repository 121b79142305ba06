-- Roles that may read or change secrets or members, apart from superusers, the owner of the tables and the caller, and the tables. The role
-- `public` stands for every role, and others have more rights. A role without usage of the schema reaches no table. Partitions have
-- privileges of their own. A role that can become the owner (set role) has all rights.
create or replace function roles_with_access() returns table (role text, reads text, changes text) language sql stable as $$
  with relation as (
    select c.oid as id, coalesce(i.inhparent, c.oid)::regclass::text as name, c.relowner as owner, c.relnamespace as schema
      from pg_class c left join pg_inherits i on i.inhrelid = c.oid
     where coalesce(i.inhparent, c.oid) = any (array['official_account', 'api_client', 'api_key', 'endpoint', 'endpoint_delivery',
             'notification_channel', 'operator', 'operator_session', 'job_file', 'audience_member', 'audience_tag', 'member_edit',
             'tracked_activity', 'event', 'stored_event', 'tracking_event']::regclass[] || to_regclass('member_touch'))
  ), candidate as (
    select 'public' as role, null::oid as id
     union all
    select rolname, oid from pg_roles where not rolsuper and rolname <> current_user and rolname !~ '^pg_'
  ), access as (
    select c.role, r.id as relation_id, r.name,
           is_owner or has_any_column_privilege(c.role, r.id, 'select') as reads,
           is_owner or has_any_column_privilege(c.role, r.id, 'insert, update')
             or has_table_privilege(c.role, r.id, 'delete, truncate, trigger') as changes
      from candidate c
     cross join relation r
     cross join lateral (
       select coalesce(pg_has_role(c.id, r.owner, case when current_setting('server_version_num')::int < 160000 then 'MEMBER' else 'SET' end),
                       false) as is_owner) o
     where r.owner is distinct from c.id and (is_owner or has_schema_privilege(c.role, r.schema, 'usage'))
  )
  select quote_ident(role), string_agg(distinct name, ', ') filter (where reads), string_agg(distinct name, ', ') filter (where changes)
    from (select a.role, a.name, a.reads and p.reads is not true as reads, a.changes and p.changes is not true as changes
            from access a
            left join access p on p.role = 'public' and p.relation_id = a.relation_id and a.role <> 'public') own
   where reads or changes
   group by role order by role
$$;
