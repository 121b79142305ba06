/** Guesses of passwords and tokens: whom they lock out, and whom they do not. */
import { randomBytes } from 'node:crypto'
import { expect, it } from 'vitest'
import { commandActor } from '../../src/operators/actor.ts'
import { addSignedIn, CONSOLE_TOKEN, Operator, PASSWORD, startConsole } from '../support/console.ts'
import { createTestDatabase } from '../support/database.ts'
import { addOperator } from '../support/operations.ts'

const { database } = await createTestDatabase()

/** The tests are the proxy. */
const config = { logLevel: 'silent' as const, trustProxy: ['loopback'], publicUrl: null }
/** Counts guesses from zero, as an instance does after a restart. */
const startInstance = async () => (await startConsole(database, { config })).url

const GUESS = 'a guess of six unrelated words'
const signIn = async (operator: Operator, email: string, password: string, address: string) =>
  (await operator.send('/sign-in', { email, password }, { 'x-forwarded-for': address })).status

/** Guesses one operator's password from addresses that nobody knows, until they are refused. */
async function lockOut(url: string, email: string): Promise<void> {
  const statuses: number[] = []
  // Six at a time, because more passwords of unknown browsers do not wait for their turn.
  for (const round of [0, 1]) {
    const guesses = Array.from({ length: 6 }, (_, i) =>
      signIn(new Operator(url), email, GUESS, `192.0.2.${6 * round + i}`),
    )
    statuses.push(...(await Promise.all(guesses)))
  }
  expect(statuses.filter((status) => status === 401)).toHaveLength(10)
  expect(await signIn(new Operator(url), email, PASSWORD, '192.0.2.99')).toBe(429)
}

/** The same browser at another instance, after its session has ended. */
function again({ device }: Operator, url: string): Operator {
  return Object.assign(new Operator(url), { device })
}

it('guesses from many addresses lock out no browser in which the operator has signed in, at any address, also after a restart', async () => {
  const first = await startInstance()
  const [operator, other] = [
    await addSignedIn({ url: first, database }, { role: 'viewer' }),
    await addSignedIn({ url: first, database }, { role: 'viewer' }),
  ]
  const holder = new Operator(first)
  await holder.signIn(CONSOLE_TOKEN)
  const url = await startInstance()
  await lockOut(url, operator.email)
  for (const address of ['192.0.2.98', '192.0.2.1'])
    expect(await signIn(again(operator, url), operator.email, PASSWORD, address)).toBe(200)
  const madeUp = `${randomBytes(16).toString('base64url')}.${randomBytes(32).toString('base64url')}`
  for (const device of [other.device, holder.device, `oa-audience-device=${madeUp}`]) {
    expect(device).toMatch(/^oa-audience-device=[\w-]{22}\.[\w-]{43}$/)
    const foreign = Object.assign(new Operator(url), { device })
    expect(await signIn(foreign, operator.email, PASSWORD, '192.0.2.99')).toBe(429)
  }
  // A session is not locked out, either, and a new password ends the trust in the cookies before it.
  const thief = again(operator, url)
  const [here, password] = [
    Object.assign(again(operator, url), { cookie: operator.cookie }),
    'a quite different password',
  ]
  expect((await here.send('/password', { current: PASSWORD, password })).status).toBe(200)
  expect(await signIn(thief, operator.email, password, '192.0.2.99')).toBe(429)
  expect(await signIn(again(here, url), operator.email, password, '192.0.2.99')).toBe(200)
})

it('guesses from many addresses use up a limit that operators in known browsers and invited people do not share', async () => {
  const url = await startInstance()
  const operator = await addSignedIn({ url, database }, { role: 'viewer' })
  const holder = new Operator(url)
  await holder.signIn(CONSOLE_TOKEN)
  const from = (address: number) => ({ 'x-forwarded-for': `198.51.100.${address}` })
  const guessToken = async (address: number) =>
    (await new Operator(url).signIn('wrong', from(address))).status
  for (let address = 1; address <= 6; address += 1)
    for (let n = 0; n < 10; n += 1) expect(await guessToken(address)).toBe(401)
  expect(await guessToken(7)).toBe(429)
  expect((await new Operator(url).signIn(CONSOLE_TOKEN, from(8))).status).toBe(429)
  expect((await again(holder, url).signIn(CONSOLE_TOKEN, from(8))).status).toBe(200)
  // Guesses of the token are not guesses of passwords.
  expect(await signIn(new Operator(url), operator.email, PASSWORD, '198.51.100.8')).toBe(200)
  const { invitation } = await addOperator(database, commandActor(), 'invited@example.com', {
    ...{ name: null, role: 'viewer', organizationIds: null },
  })
  expect((await new Operator(url).send('/invitation', { invitation }, from(8))).status).toBe(200)
})

it('guesses from many addresses leave a known browser a place among the passwords that wait', async () => {
  const url = await startInstance()
  const operator = await addSignedIn({ url, database }, { role: 'viewer' })
  const guesses = Array.from({ length: 12 }, (_, i) =>
    signIn(new Operator(url), `nobody-${i}@example.com`, GUESS, `203.0.113.${i}`),
  )
  const statuses: number[] = []
  for (const guess of guesses) void guess.then((status) => statuses.push(status))
  await expect.poll(() => statuses.filter((status) => status === 429)).not.toHaveLength(0)
  expect(await signIn(again(operator, url), operator.email, PASSWORD, '203.0.113.99')).toBe(200)
  await Promise.all(guesses)
})

it('the cookie of a browser is good for 10 guesses, which lock out no other browser of the operator', async () => {
  const url = await startInstance()
  const operator = await addSignedIn({ url, database }, { role: 'viewer' })
  const thief = again(operator, url)
  // The operator signs in again, so the stolen cookie is an earlier one.
  expect(await signIn(operator, operator.email, PASSWORD, '192.0.2.1')).toBe(200)
  expect(operator.device).not.toBe(thief.device)
  for (let n = 0; n < 10; n += 1) expect(await signIn(thief, operator.email, GUESS, `192.0.2.${n}`)).toBe(401)
  expect(await signIn(thief, operator.email, PASSWORD, '192.0.2.50')).toBe(429)
  expect(await signIn(operator, operator.email, PASSWORD, '192.0.2.50')).toBe(200)
})
