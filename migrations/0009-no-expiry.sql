-- The status alone decides whether a client or a key is valid. What had expired stays refused. Nothing reads expires_at from this version
-- on. Instances of 0.3.0 still do, so 0.5.0 drops it and the triggers *_expires_earlier.
with expired as (
  update api_client set status = 'expired' where status = 'active' and expires_at <= now() returning id
)
insert into activity (actor_kind, actor, action, object_kind, object_id, changes)
select 'service', 'service', 'client.revoked', 'client', id::text, '{"status": ["active", "expired"]}' from expired;

with expired as (
  update api_key set status = 'expired' where status = 'active' and expires_at <= now()
  returning id, organization_id, channel_oa_id
)
insert into activity (actor_kind, actor, action, organization_id, channel_oa_id, object_kind, object_id, changes)
select 'service', 'service', 'key.revoked', organization_id, channel_oa_id, 'key', id::text, '{"status": ["active", "expired"]}'
  from expired;
