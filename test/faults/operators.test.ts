/** Operators: invitations, passwords, roles, organizations and single sign-on. */
import { randomBytes } from 'node:crypto'
import { describe, expect, it } from 'vitest'
import { commandActor } from '../../src/operators/actor.ts'
import { runCommand } from '../support/command.ts'
import { addSignedIn, Operator, PASSWORD, signedIn, startConsole } from '../support/console.ts'
import { addTenant, createTestDatabase } from '../support/database.ts'
import { load } from '../support/load.ts'
import { holdTransaction, waitForBlocked } from '../support/locks.ts'
import { addOperator, inviteOperator, updateOperator } from '../support/operations.ts'

const { database } = await createTestDatabase()
const { url } = await startConsole(database)

/** A console of its own for a test with wrong attempts, which are counted by address. */
const anotherConsole = async () => ({ url: (await startConsole(database)).url, database })

/** The tests are the proxy. */
const config = { logLevel: 'silent' as const, trustProxy: ['127.0.0.1'], publicUrl: null }
const userHeader = 'x-forwarded-email'
const proxied = await startConsole(database, { config, userHeader })

const someone = () => `${randomBytes(6).toString('hex')}@example.com`
const viewer = { name: null, role: 'viewer' as const, organizationIds: null }
const invite = (email = someone()) => addOperator(database, commandActor(), email, viewer)
/** An operator who has not joined. */
const addAs = async (to: typeof database, role: 'owner' | 'viewer') => {
  const email = someone()
  const { id } = await addOperator(to, commandActor(), email, { ...viewer, role })
  return { id, email }
}
const signInAs = (operator: Operator, email: string, password = PASSWORD) =>
  operator.send('/sign-in', { email, password })

it('an invitation lets its operator choose a password, once', async () => {
  const email = someone()
  const { invitation } = await invite(email)
  const operator = new Operator(url)
  expect((await operator.post('/invitation', { invitation })).json).toEqual({ email })
  expect((await operator.send('/invitation/accept', { invitation, password: PASSWORD })).status).toBe(200)
  expect((await operator.get('/api/session')).json.session.operator).toEqual({
    ...{ name: email, kind: 'operator', role: 'viewer', organizationIds: null },
  })
  const again = { invitation, password: 'another password of six words' }
  expect((await new Operator(url).post('/invitation/accept', again)).status).toBe(404)
  expect((await signInAs(new Operator(url), email.toUpperCase())).status).toBe(200)
  expect((await signInAs(new Operator(url), email, again.password)).status).toBe(401)
})

it('an invitation is used by one of two who open it at the same time', async () => {
  const { invitation } = await invite()
  const statuses = await Promise.all(
    ['first password of the two', 'second password of the two'].map(
      async (password) =>
        (await new Operator(url).post('/invitation/accept', { invitation, password })).status,
    ),
  )
  expect(statuses.sort()).toEqual([200, 404])
})

it('an invitation ends after 24 hours, and with a newer one', async () => {
  const { id, invitation } = await invite()
  await load(database, `update operator set invitation_expires_at = now() where id = $1`, [id])
  expect((await new Operator(url).post('/invitation', { invitation })).status).toBe(404)
  const newer = await inviteOperator(database, commandActor(), id)
  expect((await new Operator(url).post('/invitation', { invitation })).status).toBe(404)
  expect((await new Operator(url).post('/invitation', { invitation: newer?.invitation })).status).toBe(200)
})

it.each([
  ['it ends', 'invitation_expires_at = now()'],
  ['its operator is disabled', `status = 'disabled'`],
  ['a newer one is made', `invitation_hash = sha256('')`],
])('an invitation sets no password if %s while the password is hashed', async (_when, change) => {
  const { id, invitation } = await invite()
  const commit = await holdTransaction(database, `update operator set ${change} where id = $1`, [id])
  const accepted = new Operator(url).send('/invitation/accept', { invitation, password: PASSWORD })
  await waitForBlocked(database, 1)
  await commit()
  expect((await accepted).status).toBe(404)
})

it('an invitation ends when its operator gets another role, but not with another name', async () => {
  const { id, invitation } = await invite()
  await updateOperator(database, commandActor(), id, { name: 'Ann' })
  expect((await new Operator(url).post('/invitation', { invitation })).status).toBe(200)
  await updateOperator(database, commandActor(), id, { role: 'owner' })
  expect((await new Operator(url).post('/invitation', { invitation })).status).toBe(404)
})

it.each(['short', 'eleven-char', 'password1234', 'aaaaaaaaaaaa', 'qwertyqwerty', '123qweasdzxc'])(
  'an invitation does not accept the password %s',
  async (password) => {
    const { invitation } = await invite()
    const { status, json } = await new Operator(url).post('/invitation/accept', { invitation, password })
    expect([status, json.details[0].path]).toEqual([400, 'password'])
  },
)

describe('a sign-in', async () => {
  const here = await anotherConsole()
  const { url } = here

  it('says the same of a wrong password, an unknown address, a disabled operator and one without a password', async () => {
    const operator = await addSignedIn(here, { role: 'viewer' })
    const disabled = await addSignedIn(here, { role: 'viewer' })
    await updateOperator(database, commandActor(), disabled.id, { status: 'disabled' })
    const invited = someone()
    await invite(invited)
    const answers = await Promise.all([
      signInAs(new Operator(url), operator.email, 'a wrong password'),
      signInAs(new Operator(url), someone()),
      signInAs(new Operator(url), disabled.email),
      signInAs(new Operator(url), invited),
    ])
    for (const { status, json } of answers)
      expect([status, json.message]).toEqual([401, 'The email address or the password is wrong'])
  })

  it('hashes the password also for an unknown address', async () => {
    const operator = await addSignedIn(here, { role: 'viewer' })
    const timeOf = async (email: string) => {
      const startedAtMs = performance.now()
      await signInAs(new Operator(url), email, 'a wrong password')
      return performance.now() - startedAtMs
    }
    const [known, unknown] = [await timeOf(operator.email), await timeOf(someone())]
    // A hash takes hundreds of milliseconds, and everything else a few.
    expect(unknown).toBeGreaterThan(known / 4)
  })

  it('opens another session than the cookie that the browser sent', async () => {
    const { email } = await addSignedIn(here, { role: 'viewer' })
    const fixed = `oa-audience-console=${randomBytes(32).toString('base64url')}`
    const operator = new Operator(url)
    operator.cookie = fixed
    expect((await signInAs(operator, email)).status).toBe(200)
    expect(operator.cookie).not.toBe(fixed)
    const other = new Operator(url)
    other.cookie = fixed
    expect((await other.get('/api/fleet')).status).toBe(401)
  })
})

describe('a session', async () => {
  const here = await anotherConsole()
  const { url } = here

  it('follows the role and the status of its operator with the next request', async () => {
    await addSignedIn(here, { role: 'owner' })
    const operator = await addSignedIn(here, { role: 'owner' })
    expect((await operator.get('/api/operators')).status).toBe(200)
    await updateOperator(database, commandActor(), operator.id, { role: 'viewer' })
    expect((await operator.get('/api/operators')).status).toBe(403)
    expect((await operator.get('/api/fleet')).status).toBe(200)
    await updateOperator(database, commandActor(), operator.id, { status: 'disabled' })
    expect((await operator.get('/api/fleet')).status).toBe(401)
    await updateOperator(database, commandActor(), operator.id, { status: 'active' })
    expect((await operator.get('/api/fleet')).status).toBe(401)
  })

  it('ends with a new password, except the one that sets it', async () => {
    const operator = await addSignedIn(here, { role: 'viewer' })
    const elsewhere = new Operator(url)
    await signInAs(elsewhere, operator.email)
    const password = 'a quite different password'
    const wrong = await operator.send('/password', { current: 'not my password', password })
    expect([wrong.status, wrong.json.details[0].path]).toEqual([400, 'current'])
    expect((await operator.send('/password', { current: PASSWORD, password })).status).toBe(200)
    expect((await operator.get('/api/fleet')).status).toBe(200)
    expect((await elsewhere.get('/api/fleet')).status).toBe(401)
    expect((await signInAs(new Operator(url), operator.email)).status).toBe(401)
  })
})

it('the management of operators leaves one of two owners who demote each other', async () => {
  const own = await createTestDatabase()
  const { url } = await startConsole(own.database)
  const [one, other] = await Promise.all([
    addSignedIn({ url, database: own.database }, { role: 'owner' }),
    addSignedIn({ url, database: own.database }, { role: 'owner' }),
  ])
  const statuses = await Promise.all([
    one.post(`/api/operators/${other.id}/update`, { role: 'viewer' }),
    other.post(`/api/operators/${one.id}/update`, { role: 'viewer' }),
  ])
  expect(statuses.map(({ status }) => status).sort()).toEqual([204, 403])
  const owners = await load(own.database, `select from operator where role = 'owner'`)
  expect(owners).toHaveLength(1)
})

it('the management of operators does not remove the last owner, and does not count one who has never joined', async () => {
  const own = await createTestDatabase()
  const { url } = await startConsole(own.database)
  const here = { url, database: own.database }
  const owner = await addSignedIn(here, { role: 'owner' })
  const fields = { name: null, role: 'owner' as const, organizationIds: null }
  const invited = await addOperator(own.database, commandActor(), someone(), fields)
  const path = `/api/operators/${owner.id}`
  const organizations = { organizationIds: ['1'] }
  expect((await owner.post(`${path}/update`, organizations)).status).toBe(400)
  for (const refused of [
    await owner.post(`${path}/update`, { role: 'manager' }),
    await owner.post(`${path}/disable`),
  ])
    expect([refused.status, refused.json.details[0].path]).toEqual([400, 'role'])
  expect((await owner.get('/api/operators')).status).toBe(200)
  // An invitation that is not accepted can be taken back.
  expect((await owner.post(`/api/operators/${invited.id}/disable`)).status).toBe(204)
  const other = await addSignedIn(here, { role: 'owner' })
  expect((await owner.post(`/api/operators/${owner.id}/update`, { role: 'manager' })).status).toBe(204)
  expect((await other.post(`/api/operators/${other.id}/update`, { role: 'manager' })).status).toBe(400)
})

it('the management of operators counts an owner who signs in at a proxy', async () => {
  const own = await createTestDatabase()
  const { url } = await startConsole(own.database, { config, userHeader })
  const [one, other] = [await addAs(own.database, 'owner'), await addAs(own.database, 'owner')]
  const get = (email: string) =>
    new Operator(url).call('GET', '/api/operators', undefined, { [userHeader]: email })
  const stepDown = () => updateOperator(own.database, commandActor(), one.id, { role: 'viewer' })
  expect((await get(one.email)).status).toBe(200)
  await expect(stepDown()).rejects.toThrow()
  const { operators } = (await get(other.email)).json
  for (const { signedInAt } of operators) expect(signedInAt).not.toBeNull()
  await stepDown()
})

it('the management of operators gives an owner of some organizations the same answer whether or not others have an operator with the address', async () => {
  const here = await anotherConsole()
  const [ours, theirs] = [await addTenant(database), await addTenant(database)]
  const organizationIds = [ours.organizationId]
  const owner = await addSignedIn(here, { role: 'owner', organizationIds })
  const joined = await addSignedIn(here, { role: 'viewer', organizationIds: [theirs.organizationId] })
  const pending = someone()
  await addOperator(database, commandActor(), pending, {
    ...{ ...viewer, organizationIds: [theirs.organizationId] },
  })
  for (const email of [someone(), joined.email, pending]) {
    const body = { email, ...viewer, organizationIds: [String(ours.organizationId)] }
    const { status, json } = await owner.post('/api/operators', body)
    expect([status, Object.keys(json)]).toEqual([200, ['id', 'invitation']])
    const opened = await new Operator(here.url).post('/invitation', { invitation: json.invitation })
    expect(opened.json).toEqual({ email })
    expect((await owner.post('/api/operators', body)).status).toBe(400)
  }
  // The operator of the others is as before.
  expect((await signInAs(new Operator(here.url), joined.email)).status).toBe(200)
})

it('the management of operators gives an address to the one who accepts first, and no invitation reserves it', async () => {
  const here = await anotherConsole()
  const [ours, theirs] = [await addTenant(database), await addTenant(database)]
  const email = someone()
  const inviteTo = async ({ organizationId }: { organizationId: bigint }) => {
    const organizationIds = [organizationId]
    const owner = await addSignedIn(here, { role: 'owner', organizationIds })
    const body = { email, ...viewer, organizationIds: organizationIds.map(String) }
    return (await owner.post('/api/operators', body)).json.invitation
  }
  const [squatted, invitation] = [await inviteTo(ours), await inviteTo(theirs)]
  const person = new Operator(here.url)
  expect((await person.send('/invitation/accept', { invitation, password: PASSWORD })).status).toBe(200)
  const late = { invitation: squatted, password: 'another password of six words' }
  expect((await new Operator(here.url).post('/invitation/accept', late)).status).toBe(404)
  expect((await signInAs(new Operator(here.url), email)).status).toBe(200)
  expect((await signInAs(new Operator(here.url), email, late.password)).status).toBe(401)
  expect((await person.get('/api/session')).json.session.operator.organizationIds).toEqual([
    String(theirs.organizationId),
  ])
})

it('the management of operators gives added organizations only to the one who gets the new link', async () => {
  const here = await anotherConsole()
  const [ours, theirs] = [await addTenant(database), await addTenant(database)]
  const email = someone()
  const full = await addSignedIn(here, { role: 'owner' })
  const squatter = await addSignedIn(here, {
    ...{ email, role: 'viewer', organizationIds: [ours.organizationId] },
  })
  const organizationIds = [ours, theirs].map(({ organizationId }) => String(organizationId))
  const refused = await full.post('/api/operators', { email, ...viewer, organizationIds })
  expect([refused.status, refused.json.details[0].message]).toEqual([
    400,
    expect.stringContaining('change that one'),
  ])
  const { json } = await full.post(`/api/operators/${squatter.id}/update`, { organizationIds })
  expect(json).toEqual({ id: String(squatter.id), invitation: expect.any(String) })
  expect((await squatter.get('/api/fleet')).status).toBe(401)
  expect((await signInAs(new Operator(here.url), email)).status).toBe(401)
  const person = new Operator(here.url)
  const accepted = { invitation: json.invitation, password: 'another password of six words' }
  expect((await person.send('/invitation/accept', accepted)).status).toBe(200)
  expect((await person.get('/api/session')).json.session.operator.organizationIds).toEqual(organizationIds)
  expect((await squatter.get('/api/fleet')).status).toBe(401)
})

it('the management of operators makes a new link for each change that adds organizations, and keeps the password with all others', async () => {
  const here = await anotherConsole()
  const [a, b] = [(await addTenant(database)).organizationId, (await addTenant(database)).organizationId]
  const change = async (before: bigint[] | null, changes: Parameters<typeof updateOperator>[3]) => {
    const { id, get } = await addSignedIn(here, { role: 'viewer', organizationIds: before })
    const { result } = await updateOperator(database, commandActor(), id, changes)
    const [row] = await load<{ has: boolean }>(
      database,
      'select password_hash is not null as has from operator where id = $1',
      [id],
    )
    return [result !== undefined, row?.has, (await get('/api/fleet')).status]
  }
  const [ended, kept] = [
    [true, false, 401],
    [false, true, 200],
  ]
  expect(await change([a], { organizationIds: [a, b] })).toEqual(ended)
  expect(await change([a], { organizationIds: [b] })).toEqual(ended)
  expect(await change([a], { organizationIds: null })).toEqual(ended)
  expect(await change([a, b], { organizationIds: [b] })).toEqual(kept)
  expect(await change(null, { organizationIds: [a] })).toEqual(kept)
  expect(await change([a], { organizationIds: [a], name: 'Ann' })).toEqual(kept)
  // An owner of the same organizations has made the link of this operator.
  expect(await change([a], { role: 'owner' })).toEqual(kept)
  // A disabled operator does not keep what would work again.
  const { id } = await addSignedIn(here, { role: 'viewer', organizationIds: [a] })
  await updateOperator(database, commandActor(), id, { status: 'disabled' })
  const { result } = await updateOperator(database, commandActor(), id, { organizationIds: [a, b] })
  const open = async () =>
    (await new Operator(here.url).post('/invitation', { invitation: result?.invitation })).status
  expect(await open()).toBe(404)
  await updateOperator(database, commandActor(), id, { status: 'active' })
  expect(await open()).toBe(200)
})

it('the management of operators prints the new link of a command that adds organizations', async () => {
  const { database, env } = await createTestDatabase()
  const ids = [(await addTenant(database)).organizationId, (await addTenant(database)).organizationId].map(
    String,
  )
  const update = async (...options: string[]) => {
    const variables = { ...env, CONSOLE_URL: 'https://console.example' }
    const { stdout, stderr } = await runCommand(['operators', 'update', String(id), ...options], variables)
    expect(stderr).toBe('')
    return stdout
  }
  const { id } = await addOperator(database, commandActor(), someone(), {
    ...viewer,
    organizationIds: [BigInt(ids[0] as string)],
  })
  expect(await update('--role', 'manager')).not.toContain('invitation')
  const link = /https:\/\/console\.example\/invitation#[\w-]{43}/
  expect(await update('--organization', ...ids)).toMatch(link)
  expect(JSON.parse(await update('--organization', 'all', '--json'))).toEqual({
    id: String(id),
    invitation: expect.stringMatching(link),
  })
})

it('the management of operators does not count an owner who has not accepted the link of more organizations', async () => {
  const own = await createTestDatabase()
  const here = { url: (await startConsole(own.database)).url, database: own.database }
  const [{ organizationId }] = [await addTenant(own.database)]
  const owner = await addSignedIn(here, { role: 'owner' })
  const next = await addSignedIn(here, { role: 'owner', organizationIds: [organizationId] })
  const stepDown = () => owner.post(`/api/operators/${owner.id}/update`, { role: 'viewer' })
  const { json } = await owner.post(`/api/operators/${next.id}/update`, { organizationIds: null })
  expect((await stepDown()).status).toBe(400)
  await next.send('/invitation/accept', { invitation: json.invitation, password: PASSWORD })
  expect((await stepDown()).status).toBe(204)
})

it('the management of operators lets an owner of some organizations add operators of these alone', async () => {
  const here = await anotherConsole()
  const [ours, foreign] = [await addTenant(database), await addTenant(database)]
  const owner = await addSignedIn(here, { role: 'owner', organizationIds: [ours.organizationId] })
  const add = async (organizationIds: string[] | null) =>
    (await owner.post('/api/operators', { email: someone(), ...viewer, organizationIds })).status
  expect(await add([String(ours.organizationId)])).toBe(200)
  for (const ids of [null, [String(foreign.organizationId)], [], ['999999']])
    expect(await add(ids), String(ids)).toBe(400)
})

it('single sign-on takes a person with two invitations to neither, until one of them is accepted', async () => {
  const email = someone()
  const [ours, theirs] = [await addTenant(database), await addTenant(database)]
  const [first, second] = await Promise.all(
    [ours, theirs].map(async ({ organizationId }) => {
      const organizationIds = [organizationId]
      const owner = await addSignedIn({ url, database }, { role: 'owner', organizationIds })
      const body = { email, ...viewer, organizationIds: organizationIds.map(String) }
      return (await owner.post('/api/operators', body)).json as { id: string; invitation: string }
    }),
  )
  expect((await as(email)('/api/fleet')).status).toBe(403)
  const { invitation } = second as { invitation: string }
  await new Operator(proxied.url).send('/invitation/accept', { invitation, password: PASSWORD })
  const { operator } = (await as(email)('/api/session')).json.session
  expect(operator.organizationIds).toEqual([String(theirs.organizationId)])
  await updateOperator(database, commandActor(), BigInt(second?.id ?? ''), { status: 'disabled' })
  expect((await as(email)('/api/fleet')).status).toBe(403)
  expect(first).toBeDefined()
})

it('single sign-on ends the password, the sessions and the link of its operator, which prove nothing of the address', async () => {
  const { organizationId } = await addTenant(database)
  const here = { url: proxied.url, database }
  const squatter = await addSignedIn(here, { role: 'viewer', organizationIds: [organizationId] })
  const { email, id } = squatter
  expect((await squatter.get('/api/fleet')).status).toBe(200)
  expect((await as(email)('/api/fleet')).status).toBe(200)
  expect((await squatter.get('/api/fleet')).status).toBe(401)
  expect((await signInAs(new Operator(url), email)).status).toBe(401)
  const { invitation } = (await inviteOperator(database, commandActor(), id)) as { invitation: string }
  expect((await as(email)('/api/fleet')).status).toBe(200)
  expect((await new Operator(url).post('/invitation', { invitation })).status).toBe(404)
})

it('single sign-on gives added organizations to the person of the address, who needs no link', async () => {
  const [ours, theirs] = [await addTenant(database), await addTenant(database)]
  const { email, id } = await addSignedIn(
    { url, database },
    {
      ...{ role: 'viewer', organizationIds: [ours.organizationId] },
    },
  )
  const organizationIds = [ours.organizationId, theirs.organizationId]
  await updateOperator(database, commandActor(), id, { organizationIds })
  const { operator } = (await as(email)('/api/session')).json.session
  expect(operator.organizationIds).toEqual(organizationIds.map(String))
})

const as = (email: string) => {
  const operator = new Operator(proxied.url)
  const headers = { ...operator.headers, [userHeader]: email }
  return (path: string) => operator.call('GET', path, undefined, headers)
}

it.each(['', 'nobody@example.com', 'a@example.com, b@example.com', '*'])(
  'single sign-on refuses the address "%s"',
  async (email) => {
    expect((await as(email)('/api/fleet')).status).toBe(403)
  },
)

it('single sign-on refuses the header from anybody else, whatever X-Forwarded-For says', async () => {
  const email = someone()
  await addOperator(database, commandActor(), email, { ...viewer, role: 'owner' })
  const elsewhere = { ...config, trustProxy: ['192.0.2.1'] }
  const direct = await startConsole(database, { config: elsewhere, userHeader })
  const operator = await signedIn(direct.url)
  for (const forwarded of [{}, { 'x-forwarded-for': '192.0.2.1' }, { forwarded: 'for=192.0.2.1' }]) {
    const headers = { ...operator.headers, [userHeader]: email, ...forwarded }
    const { status, json } = await operator.call('GET', '/api/fleet', undefined, headers)
    expect([status, json.message]).toEqual([403, expect.stringContaining('TRUST_PROXY')])
  }
  expect((await operator.get('/api/fleet')).status).toBe(200)
})

it('a console without CONSOLE_TOKEN accepts no token', async () => {
  const own = await startConsole(database, { token: null })
  expect((await new Operator(own.url).signIn('')).status).toBe(401)
  expect((await new Operator(own.url).signIn('null')).status).toBe(401)
  expect((await new Operator(own.url).get('/api/session')).json).toEqual({
    session: null,
    acceptsToken: false,
    acceptsPassword: true,
  })
})
