/**
 * The database's clock was a day ahead and was corrected. What was leased or postponed meanwhile does not wait for a day, and what has a
 * legal delay waits for its end.
 */
import { expect, it } from 'vitest'
import { takeDueMembers } from '../../src/audience/profiles.ts'
import { INT64_MIN } from '../../src/http/path-id.ts'
import { startJob } from '../../src/jobs/job.ts'
import { takeTurn } from '../../src/jobs/turn.ts'
import { commandActor } from '../../src/operators/actor.ts'
import { refreshDueFigures } from '../../src/watch/account-figures.ts'
import { takeDueAccounts } from '../../src/watch/account-monitor.ts'
import { lineEvent, textMessage } from '../../tools/simulator/events.ts'
import { addTenant, createTestDatabase } from '../support/database.ts'
import { startReceiver, startSending } from '../support/endpoints.ts'
import { eventually } from '../support/process.ts'
import { startReplaying, textsOf } from '../support/replays.ts'
import { loadStatements } from '../support/statements.ts'

const DAY = `interval '1 day'`

it('sends deliveries that were stored, leased or postponed while the clock was ahead', async () => {
  const { database, service, tenant, addEndpoint } = await startSending()
  const receiver = await startReceiver()
  const id = await addEndpoint(receiver.url, { status: 'paused' })
  for (const text of ['stored', 'leased', 'postponed', 'legal'])
    await service.deliver(tenant, [textMessage('U1', text)])
  const rows = await database.query<{ id: bigint }>('select id from endpoint_delivery order by id')
  const change = (index: number, columns: string) =>
    database.query(`update endpoint_delivery set ${columns} where id = $1`, [rows[index]?.id])
  await change(0, `due_at = now() + ${DAY}`)
  await change(1, `leased_until = now() + ${DAY}, attempts = 1`)
  await change(2, `due_at = now() + ${DAY} + interval '2 hours', attempts = 9, status = 500`)
  await change(3, `due_at = now() + interval '2 hours', attempts = 9, status = 500`)
  await database.query(`update endpoint set status = 'active' where id = $1`, [id])
  const left = await eventually(
    () => database.query('select id from endpoint_delivery'),
    ({ length }) => length === 1,
  )
  expect(left).toEqual([rows[3]])
  expect(textsOf(receiver).sort()).toEqual(['leased', 'postponed', 'stored'])
})

it('continues jobs that were leased while the clock was ahead, and gives them their turn', async () => {
  const { database } = await createTestDatabase()
  const { organizationId, accountId } = await addTenant(database)
  const start = () =>
    database.transaction((transaction) =>
      startJob(
        transaction,
        commandActor(),
        { kind: 'endpoint.retry', accountId, organizationId, parameters: { endpointId: '0' }, total: null },
        null,
      ),
    )
  const statusOf = async (id: bigint) =>
    (await database.query<{ status: string }>('select status from job where id = $1', [id]))[0]?.status
  const ahead = await start()
  await start()
  await database.query(
    `update job set leased_until = now() + ${DAY}, stepped_at = now() + ${DAY} where id = $1`,
    [ahead],
  )
  await takeTurn(database)
  expect(await statusOf(ahead)).not.toBe('running')
  const legal = await start()
  await database.query(`update job set leased_until = now() + interval '30 seconds' where id = $1`, [legal])
  while (await takeTurn(database));
  expect(await statusOf(legal)).toBe('running')
})

it('continues a replay whose next request was planned while the clock was ahead', async () => {
  const { addEndpoint, deliverMessages, replay, endOf, startRunner, job, database } =
    await startReplaying(false)
  await deliverMessages(12)
  const receiver = await startReceiver()
  const started = await replay(await addEndpoint(receiver.url), { rate: 10 })
  const runner = startRunner()
  await expect.poll(async () => (await job(started)).done).toBeGreaterThan(0n)
  await runner.stop()
  await database.query(
    `update job set leased_until = now(),
                    position = position || jsonb_build_object('nextMs', extract(epoch from now() + ${DAY}) * 1000)`,
  )
  startRunner()
  expect(await endOf(started)).toMatchObject({ status: 'done', done: 12n })
})

it('checks accounts and counts their members', async () => {
  const { database } = await createTestDatabase()
  const { accountId } = await addTenant(database)
  const set = (due: string, countDue: string) =>
    database.query(`update account_check set due_at = now() + ${due}, count_due_at = now() + ${countDue}`)
  await set(`interval '1 hour'`, `interval '10 minutes'`)
  expect(await takeDueAccounts(database, 10)).toEqual([])
  expect(await refreshDueFigures(database)).toBe(0)
  await set(DAY, DAY)
  expect(await takeDueAccounts(database, 10)).toMatchObject([{ id: accountId }])
  expect(await refreshDueFigures(database)).toBe(1)
  expect(await takeDueAccounts(database, 10)).toEqual([])
  expect(await refreshDueFigures(database)).toBe(0)
})

it('requests profiles that were postponed beyond 31 days', async () => {
  const { database, service, tenant } = await startSending()
  await database.query(`update official_account set channel_access_token = 'token'`)
  for (const userId of ['Ulegal', 'Uahead']) await service.deliver(tenant, [lineEvent('follow', userId)])
  const set = (userId: string, due: string) =>
    database.query(`update audience_member set profile_due_at = ${due} where user_id = $1`, [userId])
  await set('Ulegal', `now() + interval '31 days'`)
  await set('Uahead', `now() + interval '400 days'`)
  const { members } = await takeDueMembers(database, new Set(), INT64_MIN)
  expect(members.map(({ user_id }) => user_id)).toEqual(['Uahead'])
  await set('Uahead', `'infinity'`)
  expect((await takeDueMembers(database, new Set(), INT64_MIN)).members).toEqual([])
})

/** They take nothing, except weekly summaries, which would be sent early. */
const EXEMPT =
  /^(count-audience|count-due-profiles|expire-notifications|plan-notification-summary|select-channels-with-summary|select-endpoints|store-profile|store-unknown-profile)$/

it('is considered by every statement that takes what is due', async () => {
  const all = await loadStatements()
  const plain = all.filter(({ text }) => /(leased_until|due_at) *<=? *(now|clock_timestamp)\(\)/.test(text))
  expect(plain.map(({ name }) => name).filter((name) => !EXEMPT.test(name))).toEqual([])
  const taking = all.filter(({ text }) => /skip locked/.test(text) && /(leased_until|due_at)\b/.test(text))
  expect(taking.length).toBeGreaterThan(5)
})
