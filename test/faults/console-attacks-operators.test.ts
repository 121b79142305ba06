/** What operators and strangers try with sessions, passwords, invitations and the shared connection of the console. */
import { randomBytes } from 'node:crypto'
import { expect, it } from 'vitest'
import { AppError } from '../../src/errors.ts'
import { type Actor, commandActor } from '../../src/operators/actor.ts'
import { changePassword } from '../../src/operators/sign-in.ts'
import type { Queryable } from '../../src/postgres/statement.ts'
import {
  addSignedIn,
  Operator,
  PASSWORD,
  signedInAs,
  startConsole,
  startSignedIn,
} from '../support/console.ts'
import { addTenant, createTestDatabase } from '../support/database.ts'
import { addOperator, updateOperator } from '../support/operations.ts'

const { database } = await createTestDatabase()
const { url, operator: owner } = await startSignedIn(database)

const someone = () => `${randomBytes(6).toString('hex')}@example.com`
const viewer = { name: null, role: 'viewer' as const, organizationIds: null }
const actorOf = ({ id, email }: { id: bigint; email: string }): Actor => ({
  ...{ kind: 'operator', operatorId: id, name: email, organizationIds: null, requestId: null },
})

/** The database, with something that happens around the queries of one statement. */
function withHook(name: string, hook: (run: () => Promise<unknown>) => Promise<unknown>) {
  const query: Queryable['query'] = (statement, values) => {
    const run = () => database.query(statement, values)
    return (statement.name === name ? hook(run) : run()) as ReturnType<typeof run> as never
  }
  const hooked = new Proxy(database, {
    get: (target, property) => {
      if (property === 'query') return query
      const value = Reflect.get(target, property, target)
      return typeof value === 'function' ? value.bind(target) : value
    },
  })
  return { console: hooked, reads: { ...database.reads, console: () => hooked } }
}

it('an owner whose organizations were taken away meanwhile does not take them back', async () => {
  const { organizationId } = await addTenant(database)
  const operator = await addSignedIn({ url, database }, { role: 'owner' })
  await addSignedIn({ url, database }, { role: 'owner' })
  await updateOperator(database, commandActor(), operator.id, { organizationIds: [organizationId] })
  // The request began before the change, and waited for it.
  const before = actorOf(operator)
  await expect(updateOperator(database, before, operator.id, { organizationIds: null })).rejects.toThrow()
  await expect(addOperator(database, before, someone(), viewer)).rejects.toThrow()
})

it('an owner ends an open invitation by disabling its operator', async () => {
  const { id, invitation } = await addOperator(database, commandActor(), someone(), viewer)
  await updateOperator(database, commandActor(), id, { status: 'disabled' })
  await updateOperator(database, commandActor(), id, { status: 'active' })
  expect((await new Operator(url).post('/invitation', { invitation })).status).toBe(404)
})

it.each(['nobody', 'a@b, c@d', 'a\u202eb@example.com', 'a\u200bb@example.com'])(
  'an owner adds nothing that is not an address, or looks like another one: %j',
  async (email) => {
    const { status, json } = await owner.post('/api/operators', { email, ...viewer })
    expect([status, json.details?.[0].path]).toEqual([400, 'email'])
  },
)

it.each(['İ@example.com', 'ΑΣ@example.com', 'ẞ@example.com', '\u212a@example.com', 'ﬀ+x@example.com'])(
  'an owner adds the address %j once',
  async (email) => {
    expect((await owner.post('/api/operators', { email, ...viewer })).status).toBe(200)
    expect((await owner.post('/api/operators', { email, ...viewer })).status).toBe(400)
  },
)

it('a sign-in with a password that is replaced at the same moment opens no session', async () => {
  const target = await addSignedIn({ url, database }, { role: 'viewer' })
  const replace = async (run: () => Promise<unknown>) => {
    const rows = await run()
    const operator = { ...actorOf(target), kind: 'operator', role: 'viewer' } as const
    await changePassword(database, operator, PASSWORD, 'a quite different password')
    return rows
  }
  const raced = await startConsole(withHook('select-operator-by-email', replace))
  const thief = new Operator(raced.url)
  const { email } = target
  expect((await thief.send('/sign-in', { email, password: PASSWORD })).status).toBe(401)
  expect((await thief.get('/api/fleet')).status).toBe(401)
})

it('a sign-in that the service could not check is not a wrong one', async () => {
  let isDown = true
  const unlessDown = async (run: () => Promise<unknown>) => {
    if (isDown) throw new AppError('unavailable')
    return run()
  }
  const { email } = await addSignedIn({ url, database }, { role: 'viewer' })
  const own = await startConsole(withHook('select-operator-by-email', unlessDown))
  const signIn = async () =>
    (await new Operator(own.url).send('/sign-in', { email, password: PASSWORD })).status
  for (let attempt = 0; attempt < 12; attempt += 1) expect(await signIn()).toBe(503)
  isDown = false
  expect(await signIn()).toBe(200)
})

it('the activity log shows what was done with operators to owners alone', async () => {
  const somebody = await addSignedIn({ url, database }, { role: 'viewer' })
  const path = `/api/activity/of?kind=operator&id=${somebody.id}`
  expect((await somebody.get(path)).status).toBe(403)
  expect((await owner.get(path)).json.activity).not.toHaveLength(0)
})

it.each(['count-members', 'audience/export?format=csv'])(
  'no operator uses up the connection of all, by %s',
  async (route) => {
    const held: Array<() => void> = []
    const hold = async (run: () => Promise<unknown>) => {
      await new Promise<void>((resolve) => held.push(resolve))
      return run()
    }
    const own = await startConsole(withHook('audience-all-ids', hold))
    const { accountId } = await addTenant(database)
    const [greedy, other] = await Promise.all(
      [0, 1].map(async () => {
        const { id } = await addOperator(database, commandActor(), someone(), viewer)
        return signedInAs(database, own.url, id)
      }),
    )
    const path = `/api/accounts/${accountId}/${route}`
    const statuses: number[] = []
    const all = Array.from({ length: 8 }, async () => {
      statuses.push((await greedy?.get(path))?.status ?? 0)
    })
    await expect.poll(() => statuses.length).toBeGreaterThanOrEqual(6)
    expect(statuses).toEqual(Array(6).fill(503))
    const release = setInterval(() => {
      for (const go of held) go()
    }, 20)
    expect((await other?.get(path))?.status).toBe(200)
    await Promise.all(all)
    clearInterval(release)
  },
)
