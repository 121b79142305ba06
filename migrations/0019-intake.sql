-- functions/flush.sql of this release gives a delivery to the account that its destination names only if that account has the
-- channel secret that signed it (decision 29).

-- Removes credentials that support chats and pages sent before this release: under more names than migration 0012 knew, in
-- addresses, and all that the events of an inbox say about its channel. Events of LINE are stored as LINE sends them.
create function scrub_credentials(value jsonb, is_inbox boolean) returns jsonb language plpgsql as $$
begin
  if jsonb_typeof(value) = 'array' then
    return (select coalesce(jsonb_agg(scrub_credentials(item, is_inbox) order by place), '[]')
              from jsonb_array_elements(value) with ordinality as items (item, place));
  elsif jsonb_typeof(value) = 'object' then
    return (select coalesce(jsonb_object_agg(name, scrub_credentials(field, is_inbox)), '{}')
              from jsonb_each(value) as fields (name, field)
             where (lower(regexp_replace(name, '[^A-Za-z0-9]', '', 'g'))
                    !~ '(secret|password|passwd|passphrase|passcode|token|jwt|cookie|bearer|authorization|credential|pwd|verificationpin|(api|access|private|secret|auth|signing|encryption|master|shared|session|hmac|account)key)s?\d*$'
                    or lower(regexp_replace(name, '[^A-Za-z]', '', 'g')) in ('replytoken', 'quotetoken', 'markasreadtoken'))
               and name !~* '(^|[^a-z])(pass|pins?|otp)$'
               and not (is_inbox and name in ('channel', 'provider_config', 'changed_attributes')));
  end if;
  return value;
end $$;

-- A payload that is not valid for jsonb, such as one that is nested 20,000 levels deep, is removed: it cannot be searched.
create function scrub_payload(payload text, is_inbox boolean) returns text language plpgsql as $$
declare
  scrubbed text;
begin
  scrubbed := scrub_credentials(payload::jsonb, is_inbox)::text;
  scrubbed := regexp_replace(scrubbed, '://[^\s"\\/?#]+@', '://', 'g');
  return regexp_replace(
    scrubbed, '([?&#;][A-Za-z0-9_.-]*(?:secret|password|token|api_?key)s?=)[^&#"\\\s]+', '\1[token]', 'gi');
exception when others then
  return null;
end $$;

update event
   set payload = scrub_payload(payload, kind like 'inbox_%')
 where source in ('mbox', 'tracking')
   and (kind like 'inbox\_%'
     or payload ~* '(secret|passw|passphrase|passcode|token|jwt|cookie|bearer|authorization|credential|pwd|pass|pins?|otp|key)s?\d*"\s*:\s*(?!null)'
     or payload ~* '://[^\s"\\/?#]+@'
     or payload ~* '[?&#;][a-z0-9_.-]*(secret|password|token|api_?key)s?=(?!\[token\])');
update tracking_event
   set payload = scrub_payload(payload, false)
 where payload ~* '(secret|passw|passphrase|passcode|token|jwt|cookie|bearer|authorization|credential|pwd|pass|pins?|otp|key)s?\d*"\s*:\s*(?!null)'
    or payload ~* '://[^\s"\\/?#]+@'
    or payload ~* '[?&#;][a-z0-9_.-]*(secret|password|token|api_?key)s?=(?!\[token\])';

drop function scrub_payload(text, boolean);
drop function scrub_credentials(jsonb, boolean);
