/** Changes of an endpoint that has a backlog. */
import { describe, expect, it } from 'vitest'
import { type EndpointSettings, updateEndpoint } from '../../src/endpoints/settings.ts'
import { randomUserId, textMessage } from '../../tools/simulator/events.ts'
import { KINDS } from '../../tools/simulator/kinds.ts'
import { runCommand } from '../support/command.ts'
import { addTenant, createTestDatabase } from '../support/database.ts'
import { type Sending, startReceiver, startSending } from '../support/endpoints.ts'
import { gate } from '../support/gate.ts'
import { insertRow, load } from '../support/load.ts'
import { textsOf } from '../support/replays.ts'

const OWN = [new URL('https://oa.example.com/audience')]

const update = ({ database }: Pick<Sending, 'database'>, id: bigint, changes: Partial<EndpointSettings>) =>
  database.transaction((transaction) => updateEndpoint(transaction, id, changes, OWN))

it('an endpoint with another URL gets its whole backlog there at once, and the old URL gets nothing more', async () => {
  const sending = await startSending()
  const { service, tenant, addEndpoint: add, becomesQuiet } = sending
  const [first, second] = [await startReceiver(), await startReceiver()]
  const id = await add(first.url)
  await service.deliver(tenant, [textMessage(randomUserId(), 'accepted')])
  await becomesQuiet()
  first.answer = { status: 500 }
  for (const text of ['one', 'two']) await service.deliver(tenant, [textMessage(randomUserId(), text)])
  await becomesQuiet()
  const before = first.received.length
  expect(await update(sending, id, { url: second.url })).toMatchObject({
    before: { url: first.url },
    after: { url: second.url, name: '' },
  })
  await expect.poll(() => textsOf(second).sort()).toHaveLength(2)
  await service.deliver(tenant, [textMessage(randomUserId(), 'three')])
  await expect.poll(() => textsOf(second)).toContain('three')
  expect(textsOf(second).sort()).toEqual(['one', 'three', 'two'])
  expect(first.received).toHaveLength(before)
})

it('an endpoint with another URL finishes the request that is in flight at the old URL, and sends it once', async () => {
  const sending = await startSending()
  const { database, service, tenant, addEndpoint: add } = sending
  const [first, second] = [await startReceiver(), await startReceiver()]
  const response = gate()
  first.answer = { status: 200, until: response.passed }
  const id = await add(first.url)
  await service.deliver(tenant, [textMessage(randomUserId(), 'in flight')])
  await expect.poll(() => first.received.length).toBe(1)
  await update(sending, id, { url: second.url })
  response.open()
  await expect.poll(() => database.query('select from endpoint_delivery')).toHaveLength(0)
  expect(second.received).toEqual([])
})

it('sends queued events that its new list of events no longer has, and none of them later', async () => {
  const sending = await startSending()
  const { service, tenant, addEndpoint: add, makeDue, becomesQuiet } = sending
  const receiver = await startReceiver()
  receiver.answer = { status: 500 }
  const id = await add(receiver.url)
  await service.deliver(tenant, [textMessage(randomUserId(), 'queued')])
  await becomesQuiet()
  await update(sending, id, { events: ['follow'] })
  receiver.answer = { status: 200 }
  receiver.received.length = 0
  await service.deliver(tenant, [textMessage(randomUserId(), 'later')])
  await makeDue()
  await expect.poll(() => textsOf(receiver)).toContain('queued')
  await becomesQuiet()
  expect(textsOf(receiver)).toEqual(['queued'])
})

describe('endpoints update', async () => {
  const { database, env: created } = await createTestDatabase()
  const env = { ...created, PUBLIC_URL: 'https://oa.example.com/audience' }
  const tenant = await addTenant(database)
  const add = (columns: Record<string, unknown> = {}) =>
    insertRow(database, 'endpoint', {
      ...{ channel_oa_id: tenant.accountId, url: 'https://tool.example.com/hook', ...columns },
    })
  const run = (id: bigint, ...args: string[]) => runCommand(['endpoints', 'update', String(id), ...args], env)
  const stored = async (id: bigint) =>
    (
      await load(
        database,
        'select url, name, events, replies, allow_private_network from endpoint where id = $1',
        [id],
      )
    )[0]

  it('changes only the given settings', async () => {
    const id = await add({ name: 'Tool', events: ['follow'] })
    expect(await run(id, '--url', 'https://new.example.com', '--json')).toMatchObject({
      status: 0,
      stdout: `{"id":"${id}","status":"updated"}\n`,
    })
    const changed = { url: 'https://new.example.com/', name: 'Tool', events: ['follow'], replies: false }
    expect(await stored(id)).toEqual({ ...changed, allow_private_network: false })
    await run(id, '--events', 'all', '--replies', '--allow-private-network', '--name', '')
    expect(await stored(id)).toEqual({
      ...changed,
      name: '',
      events: null,
      replies: true,
      allow_private_network: true,
    })
    await run(id, '--no-replies')
    expect(await stored(id)).toMatchObject({ replies: false, allow_private_network: true })
  })

  it('refuses event types that do not exist, and names the nearest one', async () => {
    const id = await add()
    const message = (await run(id, '--events', 'follow,messages')).stderr
    expect(message).toContain('contains messages, which the format line does not have. Did you mean message?')
    expect((await run(id, '--events', Object.keys(KINDS).join(','))).stderr).toBe('')
    const again = ['replay', String(id), '--from', '2026-11-01', '--to', '2026-11-02', '--events', 'Follow']
    expect((await runCommand(['endpoints', ...again], env)).stderr).toContain('Did you mean follow?')
    const members = await add({ format: 'members' })
    expect((await run(members, '--events', 'member.update')).stderr).toContain('Did you mean member.updated?')
  })

  it('refuses to change nothing, and private addresses when the private network is no longer allowed', async () => {
    const id = await add({ url: 'http://127.0.0.1:3001/', allow_private_network: true })
    expect((await run(id)).stderr).toContain('Give at least one option')
    expect((await run(id, '--no-allow-private-network')).stderr).toContain('must begin with https://')
    expect((await run(404404n, '--name', 'x')).stderr).toContain('endpoint 404404 does not exist')
  })
})
