/** Streams of GET /api/audience beside writes, slow readers, lost connections and other streams. */
import { expect, it } from 'vitest'
import { addKey } from '../../src/accounts/provisioning.ts'
import { lineEvent } from '../../tools/simulator/events.ts'
import { addCredentials, addTenant, type Tenant } from '../support/database.ts'
import { load } from '../support/load.ts'
import { holdTransaction } from '../support/locks.ts'
import { eventually } from '../support/process.ts'
import { setUpService, startObserved } from '../support/service.ts'
import { addLargeTenant, busySessions, LARGE, openStream, readToEnd } from '../support/stream.ts'

const { database, service, tenant } = await setUpService()
const large = await addLargeTenant(database)
const largeOfOthers = await addLargeTenant(database)
/** Streams of an earlier test may still be ending. */
const openAll = (keys: Array<Pick<Tenant, 'headers'>>) =>
  Promise.all(
    keys.map((key) =>
      eventually(
        () => openStream(service, key),
        (response) => response.statusCode === 200,
      ),
    ),
  )
const quiet = () => expect.poll(() => busySessions(database)).toBe(0)

const exportCsv = (headers: Record<string, string>) =>
  service.call('GET', '/api/audience?userId=U1', { headers: { ...headers, accept: 'text/csv' } })

it('a stream continues when its connection was lost between two pages', async () => {
  const response = await openStream(
    service,
    await addCredentials(database, large.accountId, large.organizationId),
  )
  await quiet()
  await load(
    database,
    `select pg_terminate_backend(pid, 60000) from pg_stat_activity
      where datname = current_database() and backend_type = 'client backend' and pid <> pg_backend_pid()`,
  )
  expect(await readToEnd(response)).toHaveLength(LARGE)
})

it('a stream is cut off and logged when a page fails, so that it cannot look complete', async () => {
  const { seen, noted } = await startObserved(database)
  const response = await openStream(seen, large)
  const release = await holdTransaction(database, 'lock table audience_member in access exclusive mode')
  const fault = new Promise((resolve) => response.once('error', resolve).once('end', resolve))
  response.resume()
  expect(await fault).toMatchObject({ code: 'ECONNRESET' })
  await release()
  expect(response.complete).toBe(false)
  const lines = await eventually(
    async () => noted(),
    (sofar) => sofar.some(({ msg }) => msg === 'request'),
  )
  expect(lines).toContainEqual(expect.objectContaining({ msg: 'a stream was cut off', level: 40 }))
  expect(lines).toContainEqual(expect.objectContaining({ msg: 'request', status: 500 }))
})

const ofClient = (change: string) => `update api_client set ${change} where id = $1`
const ofKey = (change: string) =>
  `update api_key set ${change} where api_client_id = $1 and $2::bigint is not null`

it.each<[string, string]>([
  ['its client is revoked', ofClient(`status = 'revoked', name = $2::text`)],
  ['the secret is replaced', ofClient(`client_secret = 'another', name = $2::text`)],
  ['its key is revoked', ofKey(`status = 'revoked'`)],
  ['its key belongs to another account', ofKey('channel_oa_id = $2')],
  ['its key belongs to another organization', ofKey('organization_id = $2')],
])('a stream whose client or key no longer counts is cut off with the next part: %s', async (_, change) => {
  const { seen, noted } = await startObserved(database)
  const reader = await addCredentials(database, large.accountId, large.organizationId)
  const response = await openStream(seen, reader)
  let text = ''
  response.setEncoding('utf8')
  response.on('data', (chunk) => (text += chunk)).pause()
  await database.query(change, [reader.clientRowId, tenant.accountId])
  await service.deliver(large, [lineEvent('follow', 'Ulate')])
  const ended = new Promise((resolve) => response.once('error', resolve).once('end', resolve))
  response.resume()
  expect(await ended).toMatchObject({ code: 'ECONNRESET' })
  expect(response.complete).toBe(false)
  expect(text).not.toContain('Ulate')
  const requests = await eventually(
    async () => noted().filter(({ msg }) => msg === 'request'),
    (lines) => lines.length > 0,
  )
  expect(requests).toMatchObject([{ status: 401 }])
})

type Key = Pick<Tenant, 'headers'>

/** While these streams are open, another one of `refused` is refused, and one of `served` is not. */
async function expectLimit(opened: Key[], refused: Key, status: number, served: Key | null, message = '') {
  const responses = await openAll(opened)
  const answer = await exportCsv(refused.headers)
  expect([answer.status, answer.headers.get('retry-after')]).toEqual([status, '10'])
  expect(answer.json.message).toContain(message)
  if (served !== null) expect((await exportCsv(served.headers)).status).toBe(200)
  for (const response of responses) response.destroy()
  await expect.poll(async () => (await exportCsv(refused.headers)).status).toBe(200)
}
const addReader = () => addCredentials(database, large.accountId, large.organizationId)

it('the number of streams is one for each API key: 429 for a second one, while other keys are served', async () => {
  await expectLimit([large], large, 429, await addReader())
})

it('the number of streams is two for each client, with however many keys: 429, while other clients are served', async () => {
  const others = [await addLargeTenant(database), await addTenant(database), await addTenant(database)]
  const agency = await addReader()
  const keys = await Promise.all(
    others.map(async ({ accountId }) => (await addKey(database, agency.clientRowId, accountId))?.key ?? ''),
  )
  const as = (key = '') => ({ headers: { ...agency.headers, 'x-api-key': key } })
  const message = 'Two streams of this client are open; try again later'
  await expectLimit([agency, as(keys[0])], as(keys[1]), 429, others[1] as Tenant, message)
})

it('the number of streams is two for each organization, with however many clients: 429, while other organizations are served', async () => {
  const sister = await addTenant(database, { organizationId: large.organizationId })
  const message = 'Two streams of this organization are open; try again later'
  await expectLimit([large, await addReader()], sister, 429, tenant, message)
})

it('the number of streams is four in all: 503 for the fifth, and its key is not blamed', async () => {
  const ofOthers = await addCredentials(database, largeOfOthers.accountId, largeOfOthers.organizationId)
  await expectLimit([large, await addReader(), largeOfOthers, ofOthers], tenant, 503, null)
})
