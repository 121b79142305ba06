-- Whether a condition holds for a member. A repeatable file: see CONTRIBUTING.md. docs/segments.md has the fields of a condition, and
-- src/audience/condition.ts refuses everything else.
--
-- PostgreSQL replaces each call by its text, so a member costs no call: 2 µs (decision 69).

-- A bound is a time, or a duration before `at` such as 30d.
create or replace function condition_time(bound text, at timestamptz) returns timestamptz
  language sql stable parallel safe
  return case when bound like '%T%' then bound::timestamptz else at - bound::interval end;

-- Whether the condition depends on tracked activity, which is in another table.
create or replace function needs_activity(condition jsonb) returns boolean
  language sql immutable parallel safe
  return condition ?| array['lastSeenAfter', 'lastSeenBefore', 'eventCountMin', 'eventCountMax'];

-- Other programs write tags in two dimensions.
create or replace function flat_tags(tags text[]) returns jsonb
  language sql stable parallel safe
  return case when array_ndims(tags) > 1 then jsonb_path_query_array(to_jsonb(tags), '$.** ? (@.type() == "string")')
         else to_jsonb(tags) end;

-- `last_seen_at` and `event_count` include tracked activity, as GET /api/audience shows them. Never null.
create or replace function matches_condition(
  tags text[], relationship text, language text, attributes jsonb, external_id text, conversation_id text, conversation_status text,
  followed_at timestamptz, last_seen_at timestamptz, event_count numeric, source text, campaign text, condition jsonb, at timestamptz
) returns boolean
  language sql stable parallel safe
  return ((condition->'tagsAll' is null or flat_tags(tags) @> (condition->'tagsAll'))
      and (condition->'tagsAny' is null or condition->'tagsAny' ?| tags)
      and (condition->'tagsNone' is null or not (condition->'tagsNone' ?| tags))
      and (condition->'relationship' is null or relationship = condition->>'relationship')
      and (condition->'language' is null or language = condition->>'language')
      and (condition->'attributes' is null or attributes @> (condition->'attributes'))
      and (condition->'hasExternalId' is null or (external_id is not null) = (condition->'hasExternalId')::boolean)
      and (condition->'conversationStatus' is null
           or conversation_id is not null and conversation_status = condition->>'conversationStatus')
      and (condition->'sourceAny' is null or condition->'sourceAny' ? source)
      and (condition->'campaignAny' is null or condition->'campaignAny' ? campaign)
      and (condition->'followedAfter' is null or followed_at > condition_time(condition->>'followedAfter', at))
      and (condition->'followedBefore' is null or followed_at < condition_time(condition->>'followedBefore', at))
      and (condition->'lastSeenAfter' is null or last_seen_at > condition_time(condition->>'lastSeenAfter', at))
      and (condition->'lastSeenBefore' is null or last_seen_at < condition_time(condition->>'lastSeenBefore', at))
      and (condition->'eventCountMin' is null or event_count >= (condition->'eventCountMin')::numeric)
      and (condition->'eventCountMax' is null or event_count <= (condition->'eventCountMax')::numeric)) is true;

-- Of 0.3, for instances of that version during an upgrade. 0.5.0 drops it.
create or replace function matches_condition(
  tags text[], relationship text, language text, attributes jsonb, external_id text, conversation_id text, conversation_status text,
  followed_at timestamptz, last_seen_at timestamptz, event_count numeric, condition jsonb, at timestamptz
) returns boolean
  language sql stable parallel safe
  return matches_condition(tags, relationship, language, attributes, external_id, conversation_id, conversation_status,
                           followed_at, last_seen_at, event_count, null::text, null::text, condition, at);
