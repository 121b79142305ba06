-- Chatwoot's webhooks carry credentials: inbox_created and inbox_updated the whole record of the channel, most others the
-- pubsub_token of the visitor. They are no longer stored. This removes those stored before, by name, and keeps the rest.
update event
   set payload = regexp_replace(
         payload,
         '"([a-z_]*(?:secret|password|token|api_key))"\s*:\s*(?:"(?:[^"\\]|\\.)*"|[0-9.eE+-]+|true|false|null)',
         '"\1":null', 'gi')
 where source = 'mbox' and payload ~* '(secret|password|token|api_key)"\s*:';
