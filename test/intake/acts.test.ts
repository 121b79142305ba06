/** Whose act an event was: the table "Acts of a person" in docs/api.md, row by row, for every kind of the three sources. */
import { readFileSync } from 'node:fs'
import { expect, it } from 'vitest'
import { lineEvent, randomUserId } from '../../tools/simulator/events.ts'
import { eventOf, KINDS } from '../../tools/simulator/kinds.ts'
import * as chatwoot from '../support/chatwoot.ts'
import { addTenant } from '../support/database.ts'
import { load, loadMembers } from '../support/load.ts'
import { setUpService } from '../support/service.ts'

const { database, service, tenant } = await setUpService()

interface Row {
  source: string
  kind: string
  /** A type of the event, or the field that names the person. Null: any. */
  detail: string | null
  counts: boolean
}

/** One row per source, kind and detail. */
function readTable(): Row[] {
  const document = readFileSync(new URL('../../docs/api.md', import.meta.url), 'utf8')
  const [, section = ''] = /### Acts of a person\n([\s\S]*?)\n### /.exec(document) ?? []
  const lines = section.split('\n').filter((line) => /^\| (LINE|support chat|tracking) /.test(line))
  return lines.flatMap((line) => {
    const [source = '', kinds = '', details = '', countsFor = ''] = line
      .slice(1)
      .split('|')
      .map((cell) => cell.trim())
    if (!['the person', 'nobody'].includes(countsFor)) throw new Error(line)
    return listOf(kinds).flatMap((kind) =>
      (listOf(details).length === 0 ? [null] : listOf(details)).map((detail) => ({
        ...{ source, kind, detail },
        counts: countsFor === 'the person',
      })),
    )
  })
}

const listOf = (cell: string) =>
  cell
    .replaceAll('`', '')
    .split(',')
    .map((word) => word.trim())
    .filter(Boolean)

const TABLE = readTable()
const kindsOf = (source: string) => [
  ...new Set(TABLE.filter((row) => row.source === source).map(({ kind }) => kind)),
]

const AT_MS = Date.parse('2026-09-10T08:00:00.000Z')
const AT = new Date(AT_MS).toISOString()

function lineEventOf(kind: string, detail: string | null, userId: string) {
  if (!Object.hasOwn(KINDS, kind)) return lineEvent(kind, userId, { timestamp: AT_MS })
  const { source, ...event } = eventOf(kind, userId) as Record<string, unknown>
  const membership = detail === null ? {} : { membership: { type: detail, membershipId: 3189 } }
  return { ...event, ...membership, source: source ?? { type: 'user', userId }, timestamp: AT_MS }
}

function webhookOf(kind: string, detail: string | null, userId: string): chatwoot.Webhook {
  const event = kind === 'any other' ? 'something_new' : kind
  if (event.startsWith('message_')) {
    const type = detail === null ? {} : { message_type: detail }
    return { event, ...chatwoot.message(userId, type) }
  }
  if (event.startsWith('contact_')) return { event, ...chatwoot.contact(userId), updated_at: AT }
  const named = chatwoot.conversation(userId, { updated_at: AT_MS / 1000 })
  if (event.startsWith('conversation_')) return { event, ...named }
  return { event, id: 8, contact: chatwoot.contact(userId), current_conversation: named, updated_at: AT }
}

async function send({ source, kind, detail }: Row, userId: string) {
  if (source === 'LINE') return service.deliver(tenant, [lineEventOf(kind, detail, userId)])
  if (source === 'support chat') return service.chat(tenant, webhookOf(kind, detail, userId))
  // Tracking makes no member. Other programs add members with plain inserts.
  await loadMembers(database, tenant, 1, { user_id: `'${userId}'` })
  return service.track(tenant, [{ type: kind, [detail ?? 'userId']: userId, timestamp: AT }])
}

const CHATWOOT = [
  ...['message_created', 'message_updated', 'conversation_created', 'conversation_updated'],
  ...['conversation_status_changed', 'contact_created', 'contact_updated', 'webwidget_triggered'],
  ...['inbox_created', 'inbox_updated', 'any other'],
]

it.each([
  // Among them the retired one.
  ['LINE', [...Object.keys(KINDS), 'things', 'any other']],
  // Typing events are not stored.
  ['support chat', CHATWOOT],
  ['tracking', ['track', 'page', 'screen', 'identify', 'group', 'alias', 'any other']],
])('the table of docs/api.md has every kind of %s', (source, kinds) => {
  expect(kindsOf(source).sort()).toEqual(kinds.sort())
})

it.each(TABLE)(
  'an event of $source, kind $kind, with $detail: counts for the person: $counts',
  async (row) => {
    const userId = randomUserId()
    expect((await send(row, userId)).status).toBe(200)
    const act = { eventCount: 1, firstSeenAt: AT, lastSeenAt: AT }
    const nothing = { eventCount: 0, firstSeenAt: null, lastSeenAt: null }
    expect(await service.member(tenant, userId)).toMatchObject(row.counts ? act : nothing)
    expect(await load(database, 'select kind, failure from event where failure is not null')).toEqual([])
  },
)

it('an event about a stranger makes a member whom the delta feed reports and whose profile is due', async () => {
  const account = await addTenant(database)
  const before = new Date().toISOString()
  await service.chat(account, webhookOf('conversation_updated', null, 'Ustranger'))
  const path = `/api/audience?updatedSince=${before}`
  const { json } = await service.call('GET', path, { headers: account.headers })
  expect(json.data).toMatchObject([{ userId: 'Ustranger', eventCount: 0, conversation: { id: '17' } }])
  const [{ is_due }] = (await load(
    database,
    'select profile_due_at <= now() as is_due from audience_member where channel_oa_id = $1',
    [account.accountId],
  )) as [{ is_due: boolean }]
  expect(is_due).toBe(true)
})
