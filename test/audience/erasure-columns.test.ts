/**
 * Each column that can hold text of a person is erased, or is listed with the reason why an erasure leaves it. Each part of the service
 * that writes such text is interrupted by an erasure.
 */
import { Readable } from 'node:stream'
import { afterAll, expect, it } from 'vitest'
import { type Account, findAccount } from '../../src/accounts/account.ts'
import { eraseUser } from '../../src/audience/erasure/erase.ts'
import '../../src/audience/export/export-person.ts'
import { importNextFollowers } from '../../src/audience/import/import-followers.ts'
import { ProfileFiller } from '../../src/audience/profiles.ts'
import { Sender } from '../../src/endpoints/sender.ts'
import { retryEvent } from '../../src/intake/retry-events.ts'
import { storeFile } from '../../src/jobs/job-file.ts'
import { startTagging } from '../../src/jobs/tag-members.ts'
import { LineApi } from '../../src/line-api/client.ts'
import { commandActor } from '../../src/operators/actor.ts'
import { statements } from '../../src/postgres/statement.ts'
import { lineEvent, randomUserId, textMessage } from '../../tools/simulator/events.ts'
import { conversation } from '../support/chatwoot.ts'
import { addTenant, createTestDatabase, type Tenant } from '../support/database.ts'
import { startReceiver } from '../support/endpoints.ts'
import { finishJobs } from '../support/jobs.ts'
import { addFailedEvent, insertRow, load } from '../support/load.ts'
import { holdTransaction, waitForBlocked } from '../support/locks.ts'
import { startPlatform } from '../support/platform.ts'
import { eventually } from '../support/process.ts'
import { startApp } from '../support/service.ts'

/** Columns that hold a person's id or content. erase_people() deletes the row, deletes it with its member, or sets the column to null. */
const ERASED = `
  audience_member.user_id audience_member.display_name audience_member.picture_url audience_member.language
  audience_member.external_id audience_member.tags audience_member.attributes audience_member.conversation_id
  audience_member.conversation_status audience_member.source audience_member.medium audience_member.campaign
  member_touch.user_id member_touch.source member_touch.medium member_touch.campaign
  audience_tag.tag
  member_edit.changes
  event.user_id event.other_user_ids event.group_id event.message_id event.payload
  tracked_activity.user_id tracking_event.user_id tracking_event.payload
  endpoint_attempt.response_text
`

/** Erased columns without free text: states, names of fields, addresses of operators and hashes. */
const ERASED_WITHOUT_TEXT = `
  audience_member.conversation_key audience_member.relationship audience_member.relationship_key
  audience_member.source_key member_touch.key
  member_edit.fields member_edit.actor tracking_event.kind
`

/** Columns that keep what they have about an erased person. */
const KEPT: Array<[reason: string, columns: string]> = [
  ['a keyed hash, by which events from before the erasure are recognized', 'erased_person.person_hash'],
  [
    'keys and kinds of events say nothing about a person, and let no duplicate take effect',
    'event.key event.kind event.source event.failure event_key.key endpoint_delivery.event_keys endpoint_delivery.type endpoint_attempt.event_key',
  ],
  ['what an operator writes about a failed event', 'event.set_aside'],
  ['deleted when the last event is scrubbed', 'pending_erasure.user_id'],
  ['ids of messages that were taken back, without a person', 'unsent_message.message_id'],
  ['members appear as their ids', 'activity.object_id activity.changes notification.facts'],
  ['counts of people by the link that they came from, which is the same for many', 'source_day.source'],
  ['deleted at the end of the job', 'job.parameters job.position job_file.bytes'],
]

/** Tables that an organization's operators fill, or the service about itself: no person of an audience is in them. No row is in kept_delivery. */
const ABOUT_NOBODY = `
  account_check activity api_client api_key changed_account delivery_hour endpoint endpoint_answer endpoint_attempt endpoint_delivery job
  kept_delivery line_audience notification notification_account notification_channel official_account operator operator_session organization retired_address
  segment schema_function schema_migration unrecorded_revocation
`

const { database } = await createTestDatabase()

const words = (text: string) => text.trim().split(/\s+/)
const ERASED_TABLES = new Set(words(ERASED).map((place) => place.split('.', 1).join()))

it('every column that can hold text of a person is erased, or says why it is kept', async () => {
  const columns = await load<{ place: string; relation: string }>(
    database,
    `select c.relname as relation, c.relname || '.' || a.attname as place
       from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
      where c.relkind in ('r', 'p') and not c.relispartition and c.relnamespace = 'public'::regnamespace
        and a.atttypid = any (array['text', 'text[]', 'jsonb', 'json', 'bytea', 'uuid', 'uuid[]', 'bytea[]']::regtype[])`,
  )
  const listed = [...words(ERASED + ERASED_WITHOUT_TEXT), ...KEPT.flatMap(([, kept]) => words(kept))]
  const places = columns.map(({ place }) => place)
  expect(listed.filter((place) => !places.includes(place))).toEqual([])
  const unlisted = columns.filter(
    ({ place, relation }) => !listed.includes(place) && !words(ABOUT_NOBODY).includes(relation),
  )
  expect(unlisted.map(({ place }) => place)).toEqual([])
})

it('the export of a person reads every table of which an erasure deletes something', () => {
  // The tags of a member are in its row, too, and texts of receivers are not the person's.
  const tables = new Set(ERASED_TABLES)
  for (const derived of ['audience_tag', 'endpoint_attempt']) tables.delete(derived)
  const exporting = [...statements.values()].filter(({ name }) => name.startsWith('select-person-'))
  const text = exporting.map((statement) => statement.text).join('\n')
  expect([...tables].filter((table) => !new RegExp(`from ${table}\\b`).test(text))).toEqual([])
})

const platform = await startPlatform()
const lineApi = new LineApi(platform.url)
const sender = new Sender(database, () => false)
sender.start()
afterAll(() => sender.stop())
const service = await startApp(database, { handOver: sender.handOver, config: { lineApiUrl: platform.url } })
const LOGIN_CHANNEL = '2000000007'

/** Prepares for a person of the account. Returns what writes the user id or the words. */
type Prepare = (tenant: Tenant, userId: string, words: string) => Promise<() => Promise<unknown>>

const profileOf = (text: string) => ({ displayName: text, pictureUrl: text, language: text, isFriend: true })

const WRITERS: Record<string, Prepare> = {
  'a delivery of LINE': async (tenant, userId, words) => {
    const source = { type: 'group', groupId: words, userId }
    const joined = { members: [{ type: 'user', userId }] }
    const events = [
      lineEvent('message', userId, { source, message: { type: 'text', id: words, text: words } }),
      lineEvent('memberJoined', null, { source: { type: 'group', groupId: 'C1' }, joined }),
    ]
    return () => service.deliver(tenant, events)
  },
  'a callback of the support chat': async (tenant, userId, words) => {
    const event = { event: 'conversation_updated', id: words, status: words, updated_at: Date.now() / 1000 }
    return () => service.chat(tenant, conversation(userId, event))
  },
  tracking: async (tenant, userId, words) => {
    const event = { type: 'track', event: words, messageId: words, userId, timestamp: new Date() }
    return () => service.track(tenant, [event])
  },
  'a proven visit': async (tenant, userId, words) => {
    const login = { userId, loginChannelId: LOGIN_CHANNEL, issuedAtMs: Date.now() }
    const campaign = { source: words, medium: words, name: words }
    const context = { campaign, idToken: await platform.login.idToken(login) }
    const event = { type: 'page', messageId: words, timestamp: new Date(), context }
    return () => service.track(tenant, [event])
  },
  'a profile of LINE': async (_, userId, words) => {
    platform.people.set(userId, profileOf(words))
    return () => new ProfileFiller(database, lineApi).pass()
  },
  'an update of a client': async (tenant, userId, words) => {
    const id = (await service.member(tenant, userId))?.id
    return () => service.put(tenant, id, { externalId: words, tags: [words], attributes: { note: words } })
  },
  'the import of a file': async ({ accountId: id, organizationId }, userId, words) => {
    const file = Readable.from([Buffer.from(JSON.stringify({ userId, tags: [words] }))])
    await storeFile(database, commandActor(), { id, organizationId }, 'ndjson', file as never)
    return () => finishJobs(database)
  },
  'a job that tags members': async ({ accountId: id, organizationId }, userId, words) => {
    await load(database, 'update audience_member set tags = $2 where channel_oa_id = $1', [id, [words]])
    const change = { filters: { userId }, add: ['vip'], remove: [] }
    await database.transaction((transaction) =>
      startTagging(transaction, commandActor(), { id, organizationId }, change, { count: 1, expected: 1 }),
    )
    return () => finishJobs(database)
  },
  'the list of followers': async ({ accountId }, userId) => {
    const account = (await findAccount(database, accountId)) as Account
    platform.people.clear()
    platform.people.set(userId, profileOf(userId))
    return () => importNextFollowers(database, lineApi, account, async () => undefined)
  },
  'the retry of an event': async (tenant, userId, words) => {
    const id = await addFailedEvent(database, tenant, 'failed', textMessage(userId, words))
    await load(database, 'update event set user_id = $2 where id = $1', [id, userId])
    return () => retryEvent(database, BigInt(id))
  },
  'the response of an endpoint': async (tenant, userId, words) => {
    const receiver = await startReceiver()
    receiver.answer = { status: 400, body: words }
    const columns = { channel_oa_id: tenant.accountId, url: receiver.url, allow_private_network: true }
    const ids = [await insertRow(database, 'endpoint', columns)]
    const run = (text: string) => load(database, text, ids)
    const attempts = (count: number) =>
      eventually(
        () => run('select from endpoint_attempt where endpoint_id = $1'),
        ({ length }) => length >= count,
      )
    await service.deliver(tenant, [textMessage(userId, words)])
    await attempts(1)
    return async () => {
      await run('update endpoint_delivery set due_at = now() where endpoint_id = $1')
      await attempts(2)
      receiver.answer = { status: 200 }
    }
  },
}
/** They make members. The others change one. */
const MAKERS = ['a delivery of LINE', 'a callback of the support chat', 'the list of followers']

/** Columns of any type that contain a text, also as bytes. */
async function placesOf(text: string): Promise<string[]> {
  const tables = await load<{ name: string }>(
    database,
    `select relname as name from pg_class
      where relkind in ('r', 'p') and not relispartition and relnamespace = 'public'::regnamespace`,
  )
  const selects = tables.map(
    ({ name }) =>
      `select '${name}.' || e.key as place from ${name} t, jsonb_each_text(to_jsonb(t)) e where e.value ~ $1`,
  )
  const pattern = `${text}|${Buffer.from(text).toString('hex')}`
  const found = await load<{ place: string }>(database, selects.join(' union '), [pattern])
  return found.map(({ place }) => place)
}

/** Transactions that write the held text stop when they commit, while a test has the lock. */
const LOCK = 7_399
await load(database, 'create schema test')
await load(database, 'create table test.held as select null::text as text')
await load(
  database,
  `create function test.hold() returns trigger language plpgsql as $$ begin
     if new::text ~ (select text from test.held) then perform pg_advisory_xact_lock_shared(${LOCK}); end if;
     return null;
   end $$`,
)
for (const table of ERASED_TABLES)
  await load(
    database,
    `create constraint trigger hold after insert or update on ${table} deferrable initially deferred
       for each row execute function test.hold()`,
  )

async function holdWriters(text: string): Promise<() => Promise<void>> {
  await load(database, 'update test.held set text = $1', [text])
  return holdTransaction(database, `select pg_advisory_xact_lock(${LOCK})`)
}

const written = new Set<string>()

it.each(Object.entries(WRITERS))(
  '%s leaves nothing of a person who is erased while it commits, or afterwards and before it is repeated',
  async (writer, prepare) => {
    for (const isHeld of [false, true]) {
      const { channelAccessToken } = platform.account
      const tenant = await addTenant(database, { channelAccessToken, loginChannelIds: [LOGIN_CHANNEL] })
      const userId = randomUserId()
      if (!MAKERS.includes(writer)) await service.deliver(tenant, [lineEvent('follow', userId)])
      const { id } = (await service.member(tenant, userId)) ?? {}
      const write = await prepare(tenant, userId, `words-${userId}`)
      const scope = { keyId: null, accountId: tenant.accountId, organizationId: tenant.organizationId }
      const erase = async () =>
        id === undefined
          ? eraseUser(database.forTenant(scope), null, scope, userId, Date.now)
          : expect((await service.erase(tenant, id)).status).toBe(204)
      if (isHeld) {
        const release = await holdWriters(id === undefined ? userId : `words-${userId}`)
        const writing = write()
        await waitForBlocked(database, 1)
        const erasing = erase()
        await Promise.race([erasing, waitForBlocked(database, 2)])
        await release()
        await Promise.all([writing, erasing])
      } else {
        await write()
        for (const place of await placesOf(userId)) written.add(place)
        await erase()
      }
      const timestamp = Date.now() - 10_000
      await service.deliver(tenant, [textMessage(userId, 'late', { timestamp })])
      await service.track(tenant, [{ type: 'page', userId, timestamp: new Date(timestamp) }])
      await write()
      expect(await placesOf(userId)).toEqual([])
      expect(await service.member(tenant, userId)).toBeUndefined()
    }
  },
)

it('each erased column that can hold text is written by one of these writers', () => {
  expect(words(ERASED).filter((place) => !written.has(place))).toEqual([])
})
