/** POST /api/line/:id, LINE's webhook: what admits a delivery, and how it is answered. */
import { expect, it } from 'vitest'
import { lineEvent, randomUserId } from '../../tools/simulator/events.ts'
import { addTenant, type Tenant } from '../support/database.ts'
import { loadMembers } from '../support/load.ts'
import { setUpService, signedDelivery } from '../support/service.ts'

const { database, service, tenant } = await setUpService()

const storeSecret = (account: Tenant, secret: string | null) =>
  database.query('update official_account set channel_secret = $2 where id = $1', [account.accountId, secret])

it('the signature is accepted in the example that LINE publishes', async () => {
  const official = await addTenant(database, { channelSecret: '8c570fa6dd201bb328f1c1eac23a96d8' })
  const answer = await service.call('POST', `/api/line/${official.accountId}`, {
    headers: { 'X-Line-Signature': 'GhRKmvmHys4Pi8DxkF4+EayaH0OqtJtaZxgTD9fMDLs=' },
    body: '{"destination":"U8e742f61d673b39c7fff3cecb7536ef0","events":[]}',
  })
  expect(answer.status).toBe(200)
  expect(answer.json).toEqual({ accepted: 0, duplicates: 0 })
})

it('the signature is required: a delivery without one is rejected with 403', async () => {
  const answer = await service.call('POST', `/api/line/${tenant.accountId}`, { body: '{"events":[]}' })
  expect(answer.status).toBe(403)
})

it.each(['', 'x', 'GhRKmvmHys4Pi8DxkF4+EayaH0OqtJtaZxgTD9fMDLs=', '='.repeat(44)])(
  'the signature is rejected with 403 when it is %j, before the body is parsed',
  async (signature) => {
    const answer = await service.call('POST', `/api/line/${tenant.accountId}`, {
      headers: { 'x-line-signature': signature },
      body: 'not JSON',
    })
    expect(answer.json).toMatchObject({ statusCode: 403, error: 'Forbidden' })
  },
)

it('the signature covers the raw bytes: a delivery with one more space is rejected', async () => {
  const { path, init } = signedDelivery(tenant, [])
  const { headers, body } = init as { headers: Record<string, string>; body: string }
  expect((await service.call('POST', path, { headers, body })).status).toBe(200)
  expect((await service.call('POST', path, { headers, body: `${body} ` })).status).toBe(403)
})

it.each([null, '', ' ', '\t\n', '\u00a0\u3000'])(
  'the signature is rejected when the channel secret of the account is %j',
  async (secret) => {
    const account = await addTenant(database)
    await storeSecret(account, secret)
    expect((await service.deliver({ ...account, channelSecret: secret ?? '' }, [])).status).toBe(403)
  },
)

it.each([
  ['botSuspended', null, {}],
  ['unsend', 'U1', { unsend: { messageId: 'stays' } }],
])(
  'the signature of an old secret is rejected: %s has no effect, even under the id of a stored event',
  async (kind, userId, fields) => {
    const account = await addTenant(database)
    const stored = lineEvent('message', 'U1', { message: { type: 'text', id: 'stays', text: 'hello' } })
    expect((await service.deliver(account, [stored])).status).toBe(200)
    await storeSecret(account, 'another')
    const forged = lineEvent(kind, userId, { ...fields, webhookEventId: stored.webhookEventId })
    expect((await service.deliver(account, [forged])).status).toBe(403)
    expect(
      await database.query(
        `select a.suspended, e.payload like '%hello%' as stays
         from official_account a join event e on e.channel_oa_id = a.id where a.id = $1`,
        [account.accountId],
      ),
    ).toEqual([{ suspended: null, stays: true }])
  },
)

it.each(['', '{', '[]', '7', '{}', '{"events":{}}', '\uFEFF{"events":[]}', 'null'])(
  'a delivery whose body is %j is rejected with 400',
  async (body) => {
    expect((await service.deliverRaw(tenant, body)).status).toBe(400)
  },
)

it('a delivery for an account that does not exist is answered 404', async () => {
  expect((await service.deliver(tenant, [], '/api/line/999999')).status).toBe(404)
})

it('a delivery of more than 5,000 events is rejected with 400', async () => {
  const answer = await service.deliver(tenant, Array(5001).fill(1))
  expect(answer.status).toBe(400)
})

it('a delivery that names 20,000 people who joined makes all of them members', async () => {
  const account = await addTenant(database)
  const members = Array.from({ length: 20_000 }, (_, i) => ({ type: 'user', userId: `Ujoined${i}` }))
  const event = lineEvent('memberJoined', null, {
    source: { type: 'group', groupId: 'C1' },
    joined: { members },
  })
  // The request would be refused if it ran into the statement limit of 5 s. It takes 0.6 s on two cores.
  expect((await service.deliver(account, [event])).json).toEqual({ accepted: 1, duplicates: 0 })
  const counted = await database.query(
    'select event_count, count(*) from audience_member where channel_oa_id = $1 group by 1',
    [account.accountId],
  )
  expect(counted).toEqual([{ event_count: 1n, count: 20_000n }])
})

it('while another program writes to the same tables, a delivery adds members although their next ids are already taken', async () => {
  const account = await addTenant(database)
  const [sequence] = await database.query<{ next: bigint }>(
    'select last_value + 1 as next from audience_member_id_seq',
  )
  await loadMembers(database, account, 51, { id: `${sequence?.next} + i - 1` })
  const people = [randomUserId(), randomUserId()]
  const answers = await Promise.all(
    people.map((userId) => service.deliver(account, [lineEvent('follow', userId)])),
  )
  expect(answers.map(({ json }) => json)).toEqual(people.map(() => ({ accepted: 1, duplicates: 0 })))
  for (const userId of people)
    expect(await service.member(account, userId)).toMatchObject({ relationship: 'following' })
})

/** Some 30 slices of 128 people, below 1 MiB. */
const EVENTS = 4_000
const follows = (count: number) => Array.from({ length: count }, () => lineEvent('follow', randomUserId()))

it('a delivery of another account is answered while a large one that came before is being stored', async () => {
  const [busy, other] = [await addTenant(database), await addTenant(database)]
  const answered: string[] = []
  const large = service.deliver(busy, follows(EVENTS)).then(({ json }) => {
    answered.push('large')
    return json
  })
  await expect
    .poll(() => database.query('select from event where channel_oa_id = $1 limit 1', [busy.accountId]))
    .not.toHaveLength(0)
  await service.deliver(other, follows(1)).then(() => answered.push('small'))
  expect(await large).toEqual({ accepted: EVENTS, duplicates: 0 })
  expect(answered).toEqual(['small', 'large'])
})

it('each event counts once, also if it is in several slices and the delivery is repeated at the same time', async () => {
  const account = await addTenant(database)
  const events = follows(300)
  const twice = [...events, ...events]
  expect((await service.deliver(account, twice)).json).toEqual({ accepted: 300, duplicates: 300 })
  const more = [...follows(300), ...events]
  const answers = await Promise.all([more, more.toReversed()].map((each) => service.deliver(account, each)))
  const accepted = answers.map(({ json }) => (json as { accepted: number }).accepted)
  expect(accepted.reduce((sum, count) => sum + count)).toBe(300)
  const [counted] = await database.query(
    `select count(*)::int as members, sum(event_count)::int as events from audience_member where channel_oa_id = $1`,
    [account.accountId],
  )
  expect(counted).toEqual({ members: 600, events: 600 })
})
