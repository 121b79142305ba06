import { join } from 'node:path'
import { expect, it } from 'vitest'
import { ErasureLedger } from '../../src/audience/erasure/erasure-ledger.ts'
import { takeTurn } from '../../src/jobs/turn.ts'
import { commandActor } from '../../src/operators/actor.ts'
import { lineEvent, randomUserId } from '../../tools/simulator/events.ts'
import { runCommand } from '../support/command.ts'
import { addSignedIn, startSignedIn } from '../support/console.ts'
import { addTenant, type Tenant } from '../support/database.ts'
import { endWaitsOfJobs } from '../support/jobs.ts'
import { updateOperator } from '../support/operations.ts'
import { temporaryDirectory } from '../support/process.ts'
import { setUpService } from '../support/service.ts'

const { database, service, env } = await setUpService()
const { url, operator: token } = await startSignedIn(database)

const directory = temporaryDirectory()

const take = (ledger: ErasureLedger | null = null) => takeTurn(database, { turnMs: 0, erasureLedger: ledger })

/** A person who follows three accounts of three organizations. */
async function addPerson(userId = randomUserId()) {
  const tenants = [await addTenant(database), await addTenant(database), await addTenant(database)] as const
  for (const tenant of tenants) await service.deliver(tenant, [lineEvent('follow', userId)])
  const ids = tenants.map(({ accountId }) => String(accountId))
  return { userId, tenants, ids }
}

const path = ({ accountId }: Tenant, rest: string) => `/api/accounts/${accountId}/${rest}`
/** Whether the person is a member of each account. */
const membershipsOf = (tenants: readonly Tenant[], userId: string) =>
  Promise.all(tenants.map(async (tenant) => (await service.member(tenant, userId)) !== undefined))

it('the memberships of a person are those in accounts that the operator sees, by the same user id', async () => {
  const { userId, tenants, ids } = await addPerson()
  const of = (operator = token) => operator.get(path(tenants[0], `memberships?userId=${userId}`))
  expect((await of()).json.memberships.map((one: { accountId: string }) => one.accountId)).toEqual(ids)
  const organizationIds = [tenants[0].organizationId, tenants[2].organizationId]
  const viewer = await addSignedIn({ url, database }, { role: 'viewer', organizationIds })
  const member = await service.member(tenants[2], userId)
  expect((await of(viewer)).json.memberships).toEqual([
    expect.objectContaining({ accountId: ids[0], accountName: 'test' }),
    expect.objectContaining({ accountId: ids[2], memberId: member?.id }),
  ])
})

it('the memberships of a person are none for an id that is not of the form of LINE, which may belong to several people', async () => {
  const { userId, tenants } = await addPerson('customer-1')
  const memberships = await token.get(path(tenants[0], `memberships?userId=${userId}`))
  expect(memberships.json.memberships).toEqual([])
})

it('an erasure from several accounts erases the person from the confirmed accounts as one job, and from no other', async () => {
  const { userId, tenants, ids } = await addPerson()
  const accounts = ids.slice(0, 2)
  const { status, json } = await token.post(path(tenants[0], 'erase-person'), { userId, accounts })
  expect(status).toBe(202)
  expect(json.job).toMatchObject({ kind: 'members.erase', total: '2', organizationId: null })
  const ledger = new ErasureLedger(directory)
  while (await take(ledger));
  expect(await membershipsOf(tenants, userId)).toEqual([false, false, true])
  const { json: ended } = await token.get(`/api/jobs/${json.job.id}`)
  expect(ended.job).toMatchObject({ status: 'done', done: '2', tally: { erased: 2, hidden: 0 } })
  const rows = await database.query(
    `select channel_oa_id::text as account, actor from activity where action = 'member.erased' and channel_oa_id::text = any ($1)`,
    [ids],
  )
  expect(rows).toEqual(accounts.map((account) => ({ account, actor: 'token' })))
  const [unrecorded] = await database.query(
    `select count(*)::int as count from erased_person where not in_ledger and channel_oa_id::text = any ($1)`,
    [accounts],
  )
  expect(unrecorded).toEqual({ count: 0 })
  expect(JSON.stringify(ended)).not.toContain(userId)
})

it('an erasure from several accounts leaves an account that the operator does not see, or no longer sees', async () => {
  const { userId, tenants, ids } = await addPerson()
  const [first, second] = tenants
  const organizationIds = [first.organizationId, second.organizationId]
  const manager = await addSignedIn({ url, database }, { role: 'manager', organizationIds })
  const foreign = await manager.post(path(first, 'erase-person'), { userId, accounts: [ids[2]] })
  expect(foreign.status).toBe(404)
  const { json } = await manager.post(path(first, 'erase-person'), { userId, accounts: ids })
  expect(json.job.total).toBe('2')
  await take()
  await updateOperator(database, commandActor(), manager.id, { organizationIds: [first.organizationId] })
  while (await take());
  expect(await membershipsOf(tenants, userId)).toEqual([false, true, true])
  expect((await token.get(`/api/jobs/${json.job.id}`)).json.job).toMatchObject({
    tally: { erased: 1, hidden: 1 },
  })
})

it('an erasure from several accounts counts an erasure that a killed process had committed', async () => {
  const { userId, tenants, ids } = await addPerson()
  const { json } = await token.post(path(tenants[0], 'erase-person'), { userId, accounts: ids })
  await take()
  await database.query(`update job set position = null, done = 0, tally = '{}' where id = $1`, [json.job.id])
  while (await take());
  expect((await token.get(`/api/jobs/${json.job.id}`)).json.job).toMatchObject({
    ...{ done: '3', tally: { erased: 3, hidden: 0 } },
  })
})

it('an erasure from several accounts waits, and says so, while the ledger refuses the erasure', async () => {
  const { userId, tenants, ids } = await addPerson()
  const { json } = await token.post(path(tenants[0], 'erase-person'), { userId, accounts: ids })
  const missing = new ErasureLedger(join(directory, 'missing'))
  await take(missing)
  const waiting = (await token.get(`/api/jobs/${json.job.id}`)).json.job
  expect(waiting).toMatchObject({ status: 'running', done: '0', tally: { waiting: 'erasure' } })
  await endWaitsOfJobs(database)
  const ledger = new ErasureLedger(directory)
  while (await take(ledger));
  const ended = (await token.get(`/api/jobs/${json.job.id}`)).json.job
  expect(ended).toMatchObject({ status: 'done', tally: { erased: 3, hidden: 0 } })
})

it('an erasure from several accounts of the command includes every account with --all-accounts', async () => {
  const { userId, tenants, ids } = await addPerson()
  const args = ['members', 'erase', '--account', String(ids[0]), '--user-id', userId, '--json']
  expect(JSON.parse((await runCommand([...args], env)).stdout)).toEqual({ erased: 1, members: 1 })
  expect(await membershipsOf(tenants, userId)).toEqual([false, true, true])
  const everywhere = await runCommand([...args, '--all-accounts'], env)
  expect(JSON.parse(everywhere.stdout)).toEqual({ erased: 1, members: 2 })
  expect(await membershipsOf(tenants, userId)).toEqual([false, false, false])
})

it("an export of a person's data has one object per account that the operator sees, and each is recorded", async () => {
  const { userId, tenants, ids } = await addPerson()
  const organizationIds = tenants.slice(0, 2).map(({ organizationId }) => organizationId)
  const viewer = await addSignedIn({ url, database }, { role: 'viewer', organizationIds })
  const { headers, text } = await viewer.get(path(tenants[1], `people/export-all?userId=${userId}`))
  expect(headers.get('content-disposition')).toBe('attachment; filename="person.json"')
  const people = JSON.parse(text)
  expect(people.map(({ account }: { account: { id: string } }) => account.id)).toEqual([ids[1], ids[0]])
  expect(people[0]).toMatchObject({ formatVersion: 1, userId, member: { userId } })
  const recorded = await database.query(
    `select channel_oa_id::text as account from activity where action = 'member.exported' and actor = $1 order by id`,
    [viewer.email],
  )
  expect(recorded).toEqual([{ account: ids[1] }, { account: ids[0] }])
})
