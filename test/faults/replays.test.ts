/** A time range again: what a receiver gets that was broken, misconfigured or added today. */
import { expect, it } from 'vitest'
import { listDeliveries, previewDelivery } from '../../src/endpoints/endpoints.ts'
import { countReplay, planReplay } from '../../src/endpoints/replays.ts'
import { NotVisible } from '../../src/errors.ts'
import { cancelJob } from '../../src/jobs/job.ts'
import { takeTurn } from '../../src/jobs/turn.ts'
import { commandActor } from '../../src/operators/actor.ts'
import { lineEvent, textMessage } from '../../tools/simulator/events.ts'
import { runCommand } from '../support/command.ts'
import { startSignedIn } from '../support/console.ts'
import { eventually } from '../support/process.ts'
import { eventsOf, startReplaying, TODAY, textsOf } from '../support/replays.ts'

it('a replay sends what was stored before the endpoint was added, in order, as redeliveries', async () => {
  const { addReceiver, deliverMessages, replay, endOf, database, tenant } = await startReplaying()
  const texts = await deliverMessages(130)
  // It would receive the reply tokens of live events.
  const { receiver, id } = await addReceiver({ replies: true })
  const job = await endOf(await replay(id))
  expect(job).toMatchObject({ status: 'done', done: 130n, total: 130n, tally: { refused: 0 } })
  expect(textsOf(receiver)).toEqual(texts)
  expect(receiver.received).toHaveLength(2)
  for (const event of eventsOf(receiver)) {
    expect(event).toMatchObject({ mode: 'standby', deliveryContext: { isRedelivery: true } })
    expect(event).not.toHaveProperty('replyToken')
  }
  expect(JSON.parse(receiver.received[0]?.body ?? '').destination).toBe(tenant.botUserId)
  expect(await database.query('select from endpoint_delivery')).toEqual([])
  const activity = await database.query(
    `select object_kind, object_id, changes from activity where action = 'endpoint.replayed'`,
  )
  expect(activity).toEqual([
    {
      object_kind: 'endpoint',
      object_id: String(id),
      changes: {
        ...{ from: '2020-01-01T00:00:00.000Z', to: expect.stringMatching(/Z$/) },
        ...{ events: null, rate: 1_000, count: 130 },
      },
    },
  ])
})

it('a replay sends the half-open range of receipt times, and only the kinds that are asked for and received', async () => {
  const { addReceiver, service, tenant, replay, endOf, database } = await startReplaying()
  const users = ['U1', 'U2', 'U3', 'U4']
  for (const userId of users) {
    await service.deliver(tenant, [textMessage(userId, userId), lineEvent('follow', userId)])
    await database.query(
      `update event set received_at = timestamptz '2026-11-20 00:00Z' + $2 * interval '1 hour' where user_id = $1`,
      [userId, users.indexOf(userId)],
    )
  }
  const sent = async (asked: object, columns = {}) => {
    const { receiver, id } = await addReceiver(columns)
    await endOf(await replay(id, asked))
    return eventsOf(receiver).map(({ type, source }) => `${type} ${source.userId}`)
  }
  const hours = { from: '2026-11-20T10:00:00+09:00', to: '2026-11-20T03:00Z' }
  const all = ['message U2', 'follow U2', 'message U3', 'follow U3']
  expect(await sent(hours)).toEqual(all)
  expect(await sent({ ...hours, events: ['follow'] })).toEqual(['follow U2', 'follow U3'])
  expect(await sent(hours, { events: ['message'] })).toEqual(['message U2', 'message U3'])
  expect(await sent({ ...hours, events: ['follow'] }, { events: ['message'] })).toEqual([])
  expect(await sent({ from: '2026-11-19', to: '2026-11-20' })).toEqual([])
})

it('a replay says how many events it would send, and refuses a range or an endpoint that makes no sense', async () => {
  const { addEndpoint, deliverMessages, database } = await startReplaying(false)
  await deliverMessages(3)
  const line = await addEndpoint('https://example.com/')
  const members = await addEndpoint('https://example.com/', { format: 'members' })
  const plan = (asked: object, id = line) => planReplay(database, null, id, { ...TODAY, ...asked })
  const { endpoint, request } = await plan({})
  expect(await countReplay(database, endpoint, request)).toEqual({ events: 3, isMore: false })
  // Events of one flush have one time and are told apart by their ids, as numbers.
  await database.query(`update event set received_at = now() - interval '1 minute', id = 8 + (id % 100)`)
  for (const perStatement of [1, 2])
    expect((await countReplay(database, endpoint, request, { perStatement })).events).toBe(3)
  expect(await countReplay(database, endpoint, { ...request, events: ['follow'] })).toEqual({
    ...{ events: 0, isMore: false },
  })
  // The flush of a later event may not have been committed.
  expect(Date.parse(request.to)).toBeLessThanOrEqual(Date.now() - 10_000)
  for (const asked of [
    { from: 'yesterday' },
    { from: new Date(Date.now() - 9_000).toISOString() },
    { events: [] },
  ])
    await expect(plan(asked), JSON.stringify(asked)).rejects.toMatchObject({ code: 'invalid_input' })
  await expect(plan({}, members)).rejects.toThrow(`Use "oa-audience endpoints resend ${members}" instead`)
  await expect(plan({}, 0n)).rejects.toThrow(NotVisible)
  await expect(planReplay(database, [-1n as never], line, TODAY)).rejects.toThrow(NotVisible)
})

it.each([400, 500])(
  'a replay leaves a batch that the receiver refuses five times with %i as a failed delivery, and goes on',
  async (status) => {
    const { addReceiver, deliverMessages, replay, endOf, until, hurrying, job, database } =
      await startReplaying()
    await deliverMessages(3)
    const { receiver, id } = await addReceiver()
    receiver.answer = { status }
    const started = await replay(id, { rate: 10 })
    await hurrying(until(started, ({ tally }) => tally.refused === 1))
    receiver.answer = { status: 200 }
    expect(await hurrying(endOf(started))).toMatchObject({
      status: 'done',
      done: 3n,
      tally: { refused: 1 },
    })
    const texts = textsOf(receiver)
    expect(texts.filter((text) => text === 'words 0.')).toHaveLength(5)
    expect([...new Set(texts.slice(5))]).toEqual(['words 1.', 'words 2.'])

    const [failed, ...others] = await listDeliveries(database, id, 'failed', { limit: 10 })
    expect(others).toEqual([])
    expect(failed).toMatchObject({ status: 'failed', events: 1, lastStatus: status, isReplay: true })
    const preview = await previewDelivery(
      database,
      { id, accountId: (await job(started)).accountId as bigint },
      failed?.id as bigint,
      0,
    )
    expect(preview.body).toContain('words 0.')
  },
)

it('a replay waits while the endpoint is paused, and until a receiver that fails works again', async () => {
  const { addReceiver, deliverMessages, replay, endOf, until, hurrying, database } = await startReplaying()
  await deliverMessages(2)
  const { receiver, id } = await addReceiver({ status: 'paused' })
  const started = await replay(id)
  const waitsFor = (reason: string) => hurrying(until(started, ({ tally }) => tally.waiting === reason))
  await waitsFor('paused')
  expect(receiver.received).toEqual([])
  receiver.answer = { status: 503 }
  await database.query(`update endpoint set status = 'active'`)
  await waitsFor('receiver')
  receiver.answer = { status: 200 }
  expect(await hurrying(endOf(started))).toMatchObject({ status: 'done', tally: { refused: 0 } })
  expect(textsOf(receiver).slice(-2)).toEqual(['words 0.', 'words 1.'])
})

it('a replay fails if a receiver has failed for 24 hours, and what it lacks stays as a failed delivery', async () => {
  const { addReceiver, deliverMessages, replay, endOf, hurrying, database } = await startReplaying()
  await deliverMessages(2)
  const { receiver, id } = await addReceiver()
  receiver.answer = { status: 500 }
  const started = await replay(id)
  await expect
    .poll(() =>
      database.query(
        `update endpoint_delivery set first_attempt_at = now() - interval '25 hours', due_at = now()
          where status = 500 and failed_at is null and leased_until <= now() returning id`,
      ),
    )
    .toHaveLength(1)
  expect(await hurrying(endOf(started))).toMatchObject({ status: 'failed', reason: 'receiver_failed' })
  expect(await listDeliveries(database, id, 'failed', { limit: 10 })).toMatchObject([
    { events: 2, isReplay: true },
  ])
  expect(await database.query('select from endpoint_delivery where job_id is not null')).toEqual([])
})

it('a replay ends when it is cancelled or its endpoint is removed, and leaves nothing behind', async () => {
  const { addReceiver, deliverMessages, replay, endOf, database, hurrying } = await startReplaying()
  await deliverMessages(3)
  const { receiver, id } = await addReceiver()
  receiver.answer = { status: 500 }
  const endsAfter = async (end: (job: bigint) => Promise<unknown>) => {
    const started = await replay(id)
    await expect
      .poll(() => database.query('select from endpoint_delivery where job_id is not null'))
      .toHaveLength(1)
    await end(started)
    const { status, reason } = await hurrying(endOf(started))
    expect(await database.query('select from endpoint_delivery')).toEqual([])
    return [status, reason]
  }
  const cancel = (job: bigint) =>
    database.transaction((transaction) => cancelJob(transaction, commandActor(), job))
  expect(await endsAfter(cancel)).toEqual(['cancelled', 'cancelled'])
  const remove = () => database.query('delete from endpoint where id = $1', [id])
  expect(await endsAfter(remove)).toEqual(['failed', 'endpoint_removed'])
})

it('a replay is continued by another instance, and sends nothing twice', async () => {
  const { addReceiver, deliverMessages, replay, endOf, until, startRunner } = await startReplaying(false)
  const texts = await deliverMessages(60)
  const { receiver, id } = await addReceiver()
  const first = startRunner()
  const started = await replay(id, { rate: 100 })
  first.wake()
  await until(started, ({ done }) => done >= 10n)
  await first.stop()
  startRunner()
  startRunner()
  expect(await endOf(started)).toMatchObject({ status: 'done', done: 60n })
  expect(textsOf(receiver)).toEqual(texts)
})

it('a replay sends no faster than its rate', async () => {
  const { addReceiver, deliverMessages, replay, endOf } = await startReplaying()
  await deliverMessages(40)
  const { receiver, id } = await addReceiver()
  const begunAt = performance.now()
  await endOf(await replay(id, { rate: 20 }))
  // 20 per second, after a burst of one second's worth.
  expect(performance.now() - begunAt).toBeGreaterThan(900)
  expect(receiver.received.length).toBeLessThanOrEqual(20)
  expect(eventsOf(receiver)).toHaveLength(40)
})

it('a replay is the only one of its endpoint, and leaves the limit of other jobs alone', async () => {
  const { addEndpoint, deliverMessages, replay, database } = await startReplaying(false)
  await deliverMessages(1)
  const ids = []
  for (let i = 0; i < 5; i += 1) ids.push(await addEndpoint('https://example.com/', { status: 'paused' }))
  const first = await replay(ids[0] as bigint)
  await expect(replay(ids[0] as bigint)).rejects.toMatchObject({
    ...{ code: 'replay_running', message: expect.stringContaining(`Job ${first}`) },
  })
  for (const id of ids.slice(1, 4)) await replay(id)
  await expect(replay(ids[4] as bigint)).rejects.toMatchObject({ code: 'too_many_jobs' })
  expect(await database.query(`select from job where status = 'running'`)).toHaveLength(4)
})

it('a resend sends the present state of the members that match, once each', async () => {
  const { addReceiver, service, tenant, resend, endOf, becomesQuiet, database } = await startReplaying()
  await service.deliver(
    tenant,
    Array.from({ length: 120 }, (_, no) => lineEvent(no % 2 === 0 ? 'follow' : 'unfollow', `U${no}`)),
  )
  const { receiver, id } = await addReceiver({ format: 'members', events: ['member.updated'] })
  const job = await endOf(await resend(id, { relationship: 'following' }))
  expect(job).toMatchObject({ status: 'done', done: 60n, tally: { refused: 0 } })
  await becomesQuiet()
  const bodies = receiver.received.map(({ body }) => JSON.parse(body))
  expect(new Set(bodies.map(({ data }) => data.userId)).size).toBe(60)
  expect(bodies).toHaveLength(60)
  for (const { type, data } of bodies)
    expect([type, data.relationship]).toEqual(['member.updated', 'following'])
  expect(await database.query(`select parameters ? 'filters' as kept from job`)).toEqual([{ kept: false }])
})

it('a resend leaves a newer change to its own delivery, which stays if the resend is cancelled', async () => {
  const { addReceiver, service, tenant, resend, database, becomesQuiet } = await startReplaying(false)
  await service.deliver(tenant, [
    lineEvent('follow', 'U1'),
    lineEvent('follow', 'U2'),
    lineEvent('follow', 'U3'),
  ])
  const { receiver, id } = await addReceiver({ format: 'members' })
  receiver.answer = { status: 500 }
  const job = await resend(id)
  await takeTurn(database, { turnMs: 0 })
  expect(await database.query('select from endpoint_delivery where job_id = $1', [job])).toHaveLength(3)
  await service.put(tenant, (await service.member(tenant, 'U2'))?.id as string, { tags: ['new'] })
  await expect
    .poll(() => database.query('select from endpoint_delivery where job_id is null'))
    .toHaveLength(1)
  await database.transaction((transaction) => cancelJob(transaction, commandActor(), job))
  receiver.answer = { status: 200 }
  receiver.received.length = 0
  await eventually(
    async () => {
      await database.query('update endpoint_delivery set due_at = now() where leased_until <= now()')
      return receiver.received
    },
    (received) => received.length > 0,
  )
  await becomesQuiet()
  expect(receiver.received.map(({ body }) => JSON.parse(body).data.userId)).toEqual(['U2'])
})

it('a resend sends a change again whose delivery has failed', async () => {
  const { addReceiver, service, tenant, resend, endOf, database, becomesQuiet } = await startReplaying()
  const { receiver, id } = await addReceiver({ format: 'members' })
  receiver.answer = { status: 500 }
  await service.deliver(tenant, [lineEvent('follow', 'U1')])
  await expect
    .poll(() =>
      database.query(
        `update endpoint_delivery set failed_at = now() where status = 500 and leased_until <= now() returning id`,
      ),
    )
    .toHaveLength(1)
  receiver.answer = { status: 200 }
  receiver.received.length = 0
  await endOf(await resend(id))
  await expect.poll(() => receiver.received).toHaveLength(1)
  await becomesQuiet()
  expect(JSON.parse(receiver.received[0]?.body ?? '')).toMatchObject({ type: 'member.updated' })
  expect(await database.query('select from endpoint_delivery')).toEqual([])
})

it('the console counts a range, sends it again as a job, and refuses what another job does already', async () => {
  const { addEndpoint, deliverMessages, database } = await startReplaying(false)
  const { operator } = await startSignedIn(database)
  await deliverMessages(3)
  const line = await addEndpoint('https://example.com/')
  const members = await addEndpoint('https://example.com/', { format: 'members' })
  const body = { ...TODAY, events: ['message'], rate: 2 }
  const count = `/api/endpoints/${line}/count-replay?from=${TODAY.from}`
  const counted = await operator.get(`${count}&to=${TODAY.to}&events=follow,message`)
  expect(counted.json).toEqual({ events: 3, isMore: false })
  expect((await operator.get(`${count}&to=2019-12-31`)).status).toBe(400)
  const started = await operator.post(`/api/endpoints/${line}/replay`, body)
  expect([started.status, started.json.job]).toMatchObject([
    202,
    {
      ...{ kind: 'endpoint.replay', status: 'running', total: '3' },
      parameters: { endpointId: String(line), events: ['message'], rate: 2 },
    },
  ])
  expect((await operator.post(`/api/endpoints/${line}/replay`, body)).status).toBe(409)
  const resent = await operator.post(`/api/endpoints/${members}/resend`, { filters: { tag: 'vip' } })
  expect([resent.status, resent.json.job]).toMatchObject([
    202,
    { kind: 'endpoint.resend', total: '0', parameters: { matching: { tag: ['vip'] }, rate: 50 } },
  ])
  for (const [path, wrong] of [
    [`${line}/replay`, { ...TODAY, rate: 1_001 }],
    [`${line}/replay`, { from: 'now', to: '2026-01-01' }],
    [`${members}/replay`, TODAY],
    [`${members}/resend`, { filters: { updatedSince: '2026-01-01T00:00:00Z' } }],
  ] as const)
    expect((await operator.post(`/api/endpoints/${path}`, wrong)).status, JSON.stringify(wrong)).toBe(400)
})

it('the command line says how much it sends, follows the job to its end, and lists it', async () => {
  const { addReceiver, deliverMessages, database, env } = await startReplaying()
  await deliverMessages(3)
  const { receiver, id: endpointId } = await addReceiver()
  const id = String(endpointId)
  const run = (...args: string[]) => runCommand(args, env)
  const range = ['--from', TODAY.from, '--to', TODAY.to]
  const { stdout, stderr, status } = await run('endpoints', 'replay', id, ...range, '--rate', '10')
  expect(stderr).toMatch(/^3 events from 2020-01-01T00:00:00.000Z to .*Z, about 1 s at 10\/s/)
  expect([status, stdout]).toEqual([0, expect.stringMatching(/status +done\nsent +3\nrefused +0\n/)])
  expect(textsOf(receiver)).toEqual(['words 0.', 'words 1.', 'words 2.'])
  await database.query(`update endpoint set status = 'paused'`)
  const started = JSON.parse((await run('endpoints', 'replay', id, ...range, '--json')).stdout)
  expect(started).toEqual({ job: expect.stringMatching(/^\d+$/), events: 3, seconds: 1 })
  const second = await run('endpoints', 'replay', id, ...range, '--json')
  expect([second.status, second.stderr]).toEqual([
    ...[1, expect.stringContaining(`Job ${started.job} sends to endpoint ${id} again and has not ended.`)],
  ])
  expect((await run('jobs', 'list')).stdout).toContain('endpoint.replay')
  expect((await run('jobs', 'cancel', started.job)).stdout).toContain('cancelled')
  expect((await run('jobs', 'show', started.job)).stdout).toMatch(/status +cancelled\n/)
  const wrong = await run('endpoints', 'resend', id)
  expect([wrong.status, wrong.stderr]).toEqual([
    1,
    expect.stringContaining(`Use "oa-audience endpoints replay ${id}"`),
  ])
  const bad = await run('endpoints', 'replay', id, '--from', 'x', '--to', TODAY.to)
  expect(bad.stderr).toContain('--from must be a time such as')
})
