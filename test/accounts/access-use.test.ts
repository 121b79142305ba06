/** Previous secrets of clients, and the time of the last use of clients and keys. */
import { expect, it } from 'vitest'
import { atEnd } from '../support/at-end.ts'
import { addCredentials, addTenant, createTestDatabase, openDatabase } from '../support/database.ts'
import { load } from '../support/load.ts'
import { holdTransaction } from '../support/locks.ts'
import { setUpService, startApp } from '../support/service.ts'
import { startWireLog } from '../support/wire-log.ts'

const { database, service, tenant } = await setUpService()

type Headers = Record<string, string>

const newCredentials = () => addCredentials(database, tenant.accountId, tenant.organizationId)

const list = (headers: Headers, to = service) => to.call('GET', '/api/audience', { headers })

it.each(['now()', `'-infinity'`])('an expires_at of %s ends neither a client nor a key', async (time) => {
  const { headers, clientRowId, keyId } = await newCredentials()
  await database.query(`update api_client set expires_at = ${time} where id = $1`, [clientRowId])
  await database.query(`update api_key set expires_at = ${time} where id = $1`, [keyId])
  expect((await list(headers)).json).toEqual({ data: [], nextCursor: null })
})

const rotate = (id: bigint) =>
  database.query(
    `update api_client set previous_client_secret = client_secret, client_secret = 'new' where id = $1`,
    [id],
  )

it('the previous secret of a client is accepted together with a secret that another program writes', async () => {
  const { headers, clientRowId } = await newCredentials()
  await rotate(clientRowId)
  await database.query(`update api_client set client_secret = 'written' where id = $1`, [clientRowId])
  const statusOf = async (secret: string) => (await list({ ...headers, 'x-client-secret': secret })).status
  expect(await statusOf('written')).toBe(200)
  expect(await statusOf(headers['x-client-secret'])).toBe(200)
  expect(await statusOf('new')).toBe(401)
})

it('the previous secret of a client is refused like the new one if the client is revoked', async () => {
  const { headers, clientRowId } = await newCredentials()
  await rotate(clientRowId)
  await database.query(`update api_client set status = 'revoked' where id = $1`, [clientRowId])
  for (const secret of [headers['x-client-secret'], 'new'])
    expect((await list({ ...headers, 'x-client-secret': secret })).status).toBe(401)
})

type Use = { client: string | null; key: string | null }
const usesOf = async ({ keyId }: { keyId: bigint }): Promise<Use> => {
  const [uses] = await database.query<Use>(
    `select c.last_used_at::text as client, k.last_used_at::text as key
       from api_key k join api_client c on c.id = k.api_client_id where k.id = $1`,
    [keyId],
  )
  return uses as Use
}
const isRecent = async (of: { keyId: bigint; clientRowId: bigint }) => {
  const [row] = await database.query<{ count: number }>(
    `select count(*)::int as count
       from (select last_used_at from api_client where id = $1
             union all select last_used_at from api_key where id = $2) used
      where last_used_at between now() - interval '1 minute' and now()`,
    [of.clientRowId, of.keyId],
  )
  return row?.count === 2
}
const setBack = (of: { keyId: bigint; clientRowId: bigint }, time: string) =>
  Promise.all([
    database.query(`update api_client set last_used_at = ${time} where id = $1`, [of.clientRowId]),
    database.query(`update api_key set last_used_at = ${time} where id = $1`, [of.keyId]),
  ])

it.each(['null', `now() - interval '61 minutes'`, `'-infinity'`])(
  'the time of the last use is written by the next request if it was %s',
  async (time) => {
    const credentials = await newCredentials()
    await setBack(credentials, time)
    await list(credentials.headers)
    await expect.poll(() => isRecent(credentials)).toBe(true)
  },
)

it('the time of the last use is not written again within an hour, and never for revoked keys and refused clients', async () => {
  const credentials = await newCredentials()
  await setBack(credentials, `now() - interval '59 minutes'`)
  const before = await usesOf(credentials)
  const refused = await newCredentials()
  await database.query(`update api_key set status = 'revoked' where id = $1`, [refused.keyId])
  const stranger = await newCredentials()
  await list(credentials.headers)
  await list({ ...stranger.headers, 'x-client-secret': 'wrong' })
  await list(refused.headers)
  await expect.poll(() => usesOf(refused)).toEqual({ client: expect.any(String), key: null })
  expect(await usesOf(credentials)).toEqual(before)
  expect(await usesOf(stranger)).toEqual({ client: null, key: null })
})

it('the time of the last use is not written while the row is locked, and delays no request', async () => {
  const credentials = await newCredentials()
  const release = await holdTransaction(
    database,
    `select from api_client where id = ${credentials.clientRowId} for update`,
  )
  expect((await list(credentials.headers)).status).toBe(200)
  await expect.poll(() => usesOf(credentials)).toEqual({ client: null, key: expect.any(String) })
  await release()
})

/** A service whose statements are recorded. */
async function startRecorded(setUp: string) {
  const { database: direct, connection: target } = await createTestDatabase()
  const { headers } = await addTenant(direct)
  await load(direct, setUp)
  const log = await startWireLog(target)
  atEnd(() => log.close())
  const recorded = await startApp(openDatabase(log.connection))
  const request = async () => expect((await list(headers, recorded)).status).toBe(200)
  const writes = () => log.statements.filter((name) => name === 'record-use-of-credentials').length
  return { request, writes }
}

it('the time of the last use takes one statement when it is due for many concurrent requests', async () => {
  const { request, writes } = await startRecorded('select 1')
  await Promise.all(Array.from({ length: 100 }, request))
  await request()
  expect(writes()).toBe(1)
})

it('the time of the last use is not written while the database is read-only', async () => {
  const { request, writes } = await startRecorded(
    `do $$ begin execute format('alter database %I set default_transaction_read_only = on', current_database()); end $$`,
  )
  for (let i = 0; i < 5; i += 1) await request()
  expect(writes()).toBe(0)
})

it('the time of the last use is attempted once a minute if the write fails, and fails no request', async () => {
  const { request, writes } = await startRecorded(
    `create function refuse() returns trigger language plpgsql as $$ begin raise 'full'; end $$;
     create trigger refuse before update on api_key for each row execute function refuse()`,
  )
  for (let i = 0; i < 20; i += 1) await request()
  expect(writes()).toBe(1)
})
