/** A channel secret changes under load, with webhook redelivery off: LINE signs with the new secret before the service knows it. */
import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, it, vi } from 'vitest'
import { lineEvent, randomUserId } from '../../tools/simulator/events.ts'
import { createTestDatabase, type Tenant } from '../support/database.ts'
import { load } from '../support/load.ts'
import { holdTransaction } from '../support/locks.ts'
import { setUpProcess } from '../support/process.ts'
import { message, NEW_SECRET, startRefusing } from '../support/refused.ts'
import { createEncrypted } from '../support/secret-keys.ts'
import { sendDelivery } from '../support/service.ts'

const DELIVERIES = 3_000
/** LINE's secret changes after so many deliveries, and the stored one after so many more. */
const CHANGED_AT = 1_000
const STORED_AFTER = 600
const SENDERS = 16

it('loses none of 3,000 deliveries and stores no forgery, in two processes whose sessions are killed', async () => {
  const { database, tenant, service } = await setUpProcess({ WEB_CONCURRENCY: '2' })
  /** Undefined: no response. LINE would not send it again, so it does not count. */
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
  const killSessions = () =>
    database.query(
      `select pg_terminate_backend(pid) from pg_stat_activity
        where datname = current_database() and application_name like '%process ' || $1`,
      [service.child.pid],
    )
  const operate = async () => {
    await after(CHANGED_AT + STORED_AFTER)
    await database.query('update official_account set channel_secret = $2 where id = $1', [
      tenant.accountId,
      NEW_SECRET,
    ])
    await killSessions()
    await after(CHANGED_AT + 2 * STORED_AFTER)
    await killSessions()
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

it('keeps 1,000 deliveries of an account, and a flood from one address pushes out nothing of another', async () => {
  const { database } = await createTestDatabase()
  const { refuseMany, addTenants, changeSecret, stores } = await startRefusing(database)
  const [tenant] = (await addTenants(1)) as [Tenant]
  const before = await refuseMany(tenant, 20)
  const flood = await refuseMany(tenant, 1_020, { address: '192.0.2.66' })
  const after = await refuseMany(tenant, 20)
  await changeSecret([tenant])
  await stores(tenant, [...before, ...flood.slice(60), ...after])
})

it('keeps 16 MiB in all, and a flood for one account, or from one address for many, pushes out nothing of another', async () => {
  const { database } = await createTestDatabase()
  const { refuseMany, addTenants, changeSecret, stores, peopleOf, takenOf } = await startRefusing(database)
  // Each part of a flood is smaller than what is kept of the quiet account.
  const [parts, bytes] = [40, 64 * 1024]
  const tenants = await addTenants(parts + 2)
  const [quiet, flooded, ...others] = tenants as [Tenant, Tenant, ...Tenant[]]
  const kept = await refuseMany(quiet, 20, { bytes })
  for (let no = 0; no < parts; no += 1) await refuseMany(flooded, 8, { bytes, address: `198.51.100.${no}` })
  kept.push(...(await refuseMany(quiet, 5, { bytes })))
  for (const other of others) await refuseMany(other, 8, { bytes, address: '203.0.113.1' })
  kept.push(...(await refuseMany(quiet, 5, { bytes })))
  await changeSecret(tenants)
  await stores(quiet, kept)
  const taken = async () =>
    (await Promise.all(tenants.map(takenOf))).flat().reduce((sum, deliveries) => sum + deliveries, 0)
  await expect.poll(taken).toBeGreaterThan(240)
  expect((await Promise.all(tenants.map(peopleOf))).flat().length).toBeLessThanOrEqual((16 * 1024) / 64)
})

describe('what an account with', async () => {
  const { plain, database } = await createEncrypted()
  const update = ({ accountId }: Tenant, secret: string) =>
    load(plain, 'update official_account set channel_secret = $2 where id = $1', [accountId, secret])
  /** Makes the deliveries of an account wait. Resolves with the function that lets them be stored. */
  const FAULTS: Record<string, (broken: Tenant) => Promise<() => Promise<unknown>>> = {
    'an unreadable secret': async (broken) => {
      await update(broken, 'enc:v1:lost:AAAA')
      return () => update(broken, NEW_SECRET)
    },
    'a locked row': async (broken) => {
      await update(broken, NEW_SECRET)
      const lock = 'select from official_account where id = $1 for update'
      return holdTransaction(plain, lock, [broken.accountId])
    },
    'a full queue': async (broken) => {
      await update(broken, NEW_SECRET)
      return async () => undefined
    },
  }

  it.each(Object.entries(FAULTS))(
    '%s waits for delays no other account, and is stored later',
    async (fault, fail) => {
      const { refuse, refuseMany, addTenants, stores, peopleOf } = await startRefusing(database)
      const [broken, healthy] = (await addTenants(2)) as [Tenant, Tenant]
      // An account may queue 10,000 events.
      if (fault === 'a full queue')
        for (let no = 0; no < 4; no += 1)
          await refuse(
            broken,
            Array.from({ length: 4_000 }, (_, event) => ({ id: no * 4_000 + event })),
          )
      const late = await refuseMany(broken, 3)
      const people = await refuseMany(healthy, 3)
      const repair = await fail(broken)
      await update(healthy, NEW_SECRET)
      await stores(healthy, people)
      await repair()
      await expect.poll(() => peopleOf(broken)).toEqual(expect.arrayContaining(late))
    },
  )
})

const setUpRefusing = async () => startRefusing((await createTestDatabase()).database)

it('a refused delivery waits for a secret that signs it, and is forgotten if it is forged, too large, for another bot, or an hour old', async () => {
  const { refuse, refuseMany, peopleOf, addTenants, changeSecret, stores } = await setUpRefusing()
  const [tenant, expired, control] = (await addTenants(3)) as [Tenant, Tenant, Tenant]
  await refuse(expired, [message()])
  const nowMs = performance.now.bind(performance)
  const clock = vi.spyOn(performance, 'now').mockImplementation(() => nowMs() + 3_601_000)
  try {
    const people = await refuseMany(tenant, 1, { bytes: 64 * 1024 })
    await refuse(tenant, [message()], { bytes: 64 * 1024 + 1 })
    await refuse(tenant, [message()], { secret: 'forged' })
    await refuse({ ...tenant, botUserId: 'Uother' }, [message()])
    const nested = { destination: tenant.botUserId, ...(message() as object) }
    await refuse({ ...tenant, botUserId: '"' }, [nested])
    await changeSecret([tenant], 'wrong')
    const proven = await refuseMany(control, 1)
    await changeSecret([control, expired])
    await stores(control, proven)
    expect([await peopleOf(tenant), await peopleOf(expired)]).toEqual([[], []])
    await changeSecret([tenant])
    await stores(tenant, people)
  } finally {
    clock.mockRestore()
  }
})

it('a refused delivery is stored by the process that refused it', async () => {
  const { start, refuseMany, addTenants, changeSecret, stores, takenOf } = await setUpRefusing()
  const [tenant] = (await addTenants(1)) as [Tenant]
  const people = [...(await refuseMany(tenant, 2)), ...(await refuseMany(tenant, 3, { to: await start() }))]
  await changeSecret([tenant])
  await stores(tenant, people)
  await expect.poll(() => takenOf(tenant)).toEqual([2, 3])
})
