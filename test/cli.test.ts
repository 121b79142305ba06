/** CONTRACT: the command line `oa-audience`. */
import { expect, it } from 'vitest'
import { addTenant, createTestDatabase, urlOf } from './support/database.ts'
import { runCommand } from './support/process.ts'
import { startAppForTest } from './support/service.ts'

it('sets up an account, a client and a key that then works, and stops working when revoked', async () => {
  const { database, connection } = await createTestDatabase()
  const env = { DATABASE_URL: urlOf(connection) }
  const json = (...args: string[]) => JSON.parse(runCommand([...args, '--json'], env).stdout)

  const organization = json('organizations', 'add', '--name', 'Agency')
  expect(organization).toEqual({ id: '1' })
  const account = json(
    'accounts',
    'add',
    '--organization',
    '1',
    '--name',
    'Café',
    '--channel-secret',
    's',
    '--basic-id',
    '@cafe',
  )
  expect(Object.keys(account)).toEqual(['id', 'oaHash', 'trackingKey'])
  expect(account.oaHash).toMatch(/^[0-9a-f]{64}$/)
  expect(account.trackingKey).not.toBe(account.oaHash)
  const client = json('clients', 'add')
  expect(Object.keys(client)).toEqual(['id', 'clientId', 'clientSecret'])
  const key = json('keys', 'add', '--client', client.id, '--account', account.id)
  expect(Object.keys(key)).toEqual(['id', 'key'])

  const service = await startAppForTest(database)
  const headers = {
    'x-client-id': client.clientId,
    'x-client-secret': client.clientSecret,
    'x-api-key': key.key,
  }
  const list = () => service.call('GET', '/api/audience', { headers })
  expect((await list()).json).toEqual({ data: [], nextCursor: null })
  expect(json('keys', 'revoke', key.id)).toEqual({ id: key.id, status: 'revoked' })
  expect((await list()).text).toBe('null')
  expect(json('clients', 'revoke', client.id)).toEqual({ id: client.id, status: 'revoked' })
  expect((await list()).status).toBe(401)

  expect(json('accounts', 'list')).toEqual([
    {
      id: '1',
      organizationId: '1',
      name: 'Café',
      channelId: null,
      basicId: '@cafe',
      verified: null,
    },
  ])
  expect(json('accounts', 'update', '1', '--channel-secret', 'rotated', '--basic-id', '')).toEqual({
    id: '1',
    changed: 'channel_secret, basic_id',
  })
  const [updated] = await database.query('select name, channel_secret, basic_id from official_account')
  expect(updated).toEqual({ name: 'Café', channel_secret: 'rotated', basic_id: null })
  for (const wrong of [['1'], ['1', '--name', ''], ['404', '--name', 'Nobody']]) {
    expect(runCommand(['accounts', 'update', ...wrong], env).status).toBe(1)
  }
  expect(JSON.parse(runCommand(['accounts', 'show', '1', '--json'], env).stdout)).toMatchObject({
    oaHash: account.oaHash,
    trackingKey: account.trackingKey,
    hasChannelSecret: true,
  })
  for (const group of ['clients', 'keys', 'accounts']) {
    const { stdout } = runCommand([group, 'list'], env)
    for (const secret of [client.clientSecret, key.key, account.oaHash]) expect(stdout).not.toContain(secret)
  }
  await database.close()
})

it('adds beside rows that another program loaded with ids of their own', async () => {
  const { database, connection } = await createTestDatabase()
  await database.query(`insert into organization (id, name) values (1, 'loaded'), (7, 'loaded')`)
  await database.query(`insert into official_account (id, organization_id, name) values (1, 7, 'loaded')`)
  await database.query(
    `insert into api_client (id, client_id, client_secret, status) values (1, 'c', 's', 'active')`,
  )
  await database.query(
    `insert into api_key (id, api_client_id, key, status, channel_oa_id, organization_id) values (1, 1, 'k', 'active', 1, 7)`,
  )
  const env = { DATABASE_URL: urlOf(connection) }
  const json = (...args: string[]) => JSON.parse(runCommand([...args, '--json'], env).stdout)
  expect(json('organizations', 'add', '--name', 'ours')).toEqual({ id: '8' })
  const account = json('accounts', 'add', '--organization', '8', '--name', 'ours')
  const client = json('clients', 'add')
  const key = json('keys', 'add', '--client', client.id, '--account', account.id)
  for (const { id } of [account, client, key]) expect(Number(id)).toBeGreaterThan(1)
  await database.close()
})

it('shows every environment variable in its help', () => {
  const { status, stdout } = runCommand(['--help'])
  expect(status).toBe(0)
  for (const name of [
    'PORT',
    'DATABASE_URL',
    'DATA_DIR',
    'REDIS_URL',
    'METRICS_PORT',
    'organizations',
    'demo',
  ])
    expect(stdout).toContain(name)
})

it('says in one line what cannot be done', async () => {
  const { database, connection } = await createTestDatabase()
  const tenant = await addTenant(database)
  const env = { DATABASE_URL: urlOf(connection) }
  for (const [args, message] of [
    [['keys', 'revoke', '7'], 'there is no key 7'],
    [['keys', 'add', '--client', '1', '--account', '7'], 'there is no official account 7'],
    [['accounts', 'add', '--organization', '7', '--name', 'x'], 'the database refuses this'],
    [['clients', 'revoke', 'x'], '"x" is no id'],
    [['organizations', 'add', '--name', ''], 'must not be empty'],
    [['events', 'retry', '7'], 'there is no event 7 that waits'],
    [['accounts', 'update', '1', '--oa-hash', 'a/b'], '--oa-hash must be letters, digits'],
    [['events', 'list', '--account', '7'], 'there is no account 7'],
    [
      ['accounts', 'add', '--organization', '1', '--name', 'x', '--oa-hash', tenant.oaHash],
      'another one has that already',
    ],
  ] as const) {
    const { status, stderr } = runCommand([...args], env)
    expect(status, args.join(' ')).toBe(1)
    expect(stderr).toMatch(/^oa-audience: [^\n]+\n$/)
    expect(stderr).toContain(message)
  }
  await database.close()
  for (const [env, message] of [
    [{ DATABASE_URL: 'postgres://127.0.0.1:1/x' }, 'the database does not answer (ECONNREFUSED)'],
    [{ DATABASE_URL: 'none' }, 'this command needs a database'],
  ] as const) {
    const { status, stderr } = runCommand(['clients', 'list'], env)
    expect(status).toBe(1)
    expect(stderr).toContain(message)
  }
  const faulty = runCommand(['serve'], { PORT: 'x', LOG_LEVEL: 'y' })
  expect(faulty.status).toBe(1)
  expect(faulty.stderr.split('\n').filter(Boolean)).toHaveLength(2)
})
