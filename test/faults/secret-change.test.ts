/** A channel secret changes under load, with webhook redelivery off: LINE signs with the new secret before the service knows it. */
import { setTimeout as sleep } from 'node:timers/promises'
import { expect, it } from 'vitest'
import { lineEvent, randomUserId } from '../../tools/simulator/events.ts'
import { addTenant } from '../support/database.ts'
import { load } from '../support/load.ts'
import { eventually, setUpProcess, startHealthy } from '../support/process.ts'
import { sendDelivery } from '../support/service.ts'

const DELIVERIES = 3_000
/** LINE's secret changes after so many deliveries, and the stored one after so many more. */
const CHANGED_AT = 1_000
const STORED_AFTER = 600
const SENDERS = 16
const NEW_SECRET = 'f'.repeat(32)

it('loses none of 3,000 deliveries and takes in no forgery, while the service and its sessions are killed', async () => {
  const { database, tenant, env, service: started } = await setUpProcess()
  let service = started
  /** Undefined: no response, as during a kill. LINE would not send it again, so it does not count. */
  const send = async (userId: string, channelSecret: string) => {
    const sent = sendDelivery(service.url, { ...tenant, channelSecret }, [lineEvent('message', userId)])
    const response = await sent.catch(() => undefined)
    await response?.arrayBuffer().catch(() => undefined)
    return response?.status
  }
  const answered = new Set<string>()
  const forged = new Set<string>()
  let refused = 0
  let sent = 0
  const sender = async () => {
    while (sent < DELIVERIES) {
      const no = sent
      sent += 1
      const userId = randomUserId()
      const status = await send(userId, no < CHANGED_AT ? tenant.channelSecret : NEW_SECRET)
      if (status === 403) refused += 1
      if (status === 200 || status === 403) answered.add(userId)
      // While the service is away, the next delivery is not sent at once.
      else await sleep(50)
      if (no % 50 > 0) continue
      const stranger = randomUserId()
      forged.add(stranger)
      await send(stranger, 'forged')
    }
  }
  const after = (count: number) => expect.poll(() => sent).toBeGreaterThanOrEqual(count)
  const restart = async () => {
    service.child.kill('SIGKILL')
    await service.exited
    service = await startHealthy(env)
  }
  const killSessions = () =>
    database.query(
      `select pg_terminate_backend(pid) from pg_stat_activity
        where datname = current_database() and application_name like '%process ' || $1`,
      [service.child.pid],
    )
  const operate = async () => {
    await after(CHANGED_AT + STORED_AFTER / 3)
    await restart()
    await after(CHANGED_AT + STORED_AFTER)
    await database.query('update official_account set channel_secret = $2 where id = $1', [
      tenant.accountId,
      NEW_SECRET,
    ])
    await killSessions()
    await after(CHANGED_AT + 2 * STORED_AFTER)
    await restart()
  }
  await Promise.all([operate(), ...Array.from({ length: SENDERS }, sender)])
  expect(refused).toBeGreaterThan(100)

  const selectCounts = 'select user_id, event_count from audience_member'
  const countsOf = async () => {
    const rows = await load<{ user_id: string; event_count: bigint }>(database, selectCounts)
    return new Map(rows.map(({ user_id, event_count }) => [user_id, event_count]))
  }
  const missing = async () => {
    const counts = await countsOf()
    return [...answered].filter((userId) => !counts.has(userId))
  }
  await expect.poll(missing).toEqual([])
  const counts = await countsOf()
  expect([...counts.values()].filter((count) => count !== 1n)).toEqual([])
  expect([...forged].filter((userId) => counts.has(userId))).toEqual([])
})

it('a flood of forgeries fills the share of the account that it names, and the deliveries of others pass', async () => {
  const { database, service, tenant: flooded } = await setUpProcess()
  const other = await addTenant(database)
  let isOver = false
  const flood = async () => {
    const text = 'x'.repeat(20_000)
    while (!isOver) {
      const event = lineEvent('message', randomUserId(), { message: { type: 'text', id: '1', text } })
      const forged = { ...flooded, channelSecret: 'forged' }
      expect((await sendDelivery(service.url, forged, [event])).status).toBe(403)
    }
  }
  const floods = Array.from({ length: 16 }, flood)
  const keptBytes = async () => {
    const [row] = await load<{ bytes: bigint }>(
      database,
      'select coalesce(sum(bytes), 0) as bytes from kept_delivery',
      [],
    )
    return Number(row?.bytes)
  }
  await eventually(keptBytes, (bytes) => bytes > 15 * 1024 * 1024)
  const statuses = new Set<number>()
  for (let i = 0; i < 200; i += 1) {
    statuses.add((await sendDelivery(service.url, other, [lineEvent('message', randomUserId())])).status)
  }
  isOver = true
  await Promise.all(floods)
  expect([...statuses]).toEqual([200])
  expect(await keptBytes()).toBeLessThanOrEqual(16 * 1024 * 1024)
})
