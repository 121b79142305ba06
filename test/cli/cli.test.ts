/** The command line `oa-audience`. */
import { expect, it } from 'vitest'
import { addAccount, addClient, addKey, addOrganization } from '../../src/accounts/provisioning.ts'
import { runCommand } from '../support/command.ts'
import { addTenant, createTestDatabase } from '../support/database.ts'
import { startApp } from '../support/service.ts'

const { database, env } = await createTestDatabase()

const json = async (...args: string[]) => JSON.parse((await runCommand([...args, '--json'], env)).stdout)

/** An account with every secret and no member. */
async function addSecretAccount() {
  const organizationId = await addOrganization(database, 'Agency')
  const account = await addAccount(database, organizationId, {
    name: 'Café',
    channel_secret: 'the-channel-secret',
    channel_access_token: 'the-access-token',
    chat_secret: 'the-chat-secret',
    basic_id: '@cafe',
  })
  return { ...account, organizationId, idText: String(account.id) }
}

it('provisions an organization, an account, a client and a key that grants access', async () => {
  const organization = await json('organizations', 'add', '--name', 'Agency')
  expect(organization).toEqual({ id: expect.stringMatching(/^\d+$/) })
  const account = await json('accounts', 'add', '--organization', organization.id, '--name', 'Café')
  expect(Object.keys(account)).toEqual(['id', 'oaHash', 'trackingKey'])
  expect(account.oaHash).toMatch(/^[0-9a-f]{64}$/)
  expect(account.trackingKey).not.toBe(account.oaHash)
  const client = await json('clients', 'add')
  expect(Object.keys(client)).toEqual(['id', 'clientId', 'clientSecret'])
  const key = await json('keys', 'add', '--client', client.id, '--account', account.id)
  expect(Object.keys(key)).toEqual(['id', 'key'])

  const service = await startApp(database)
  const headers = {
    'x-client-id': client.clientId,
    'x-client-secret': client.clientSecret,
    'x-api-key': key.key,
  }
  const answer = await service.call('GET', '/api/audience', { headers })
  expect(answer.json).toEqual({ data: [], nextCursor: null })
})

it.each([
  ['PUBLIC_URL', { PUBLIC_URL: 'https://oa.example.com/base/' }, 'https://oa.example.com/base'],
  ['HOST and PORT', { HOST: '0.0.0.0', PORT: '3111' }, 'http://127.0.0.1:3111'],
])(
  'with %s, accounts add and accounts show print the addresses for LINE and the support chat',
  async (_, variables, base) => {
    const { organizationId } = await addSecretAccount()
    const withEnv = { ...env, ...variables }
    const options = ['--organization', String(organizationId), '--name', 'Café']
    const added = (await runCommand(['accounts', 'add', ...options], withEnv)).stdout
    const [, id] = /^id +(\d+)$/m.exec(added) ?? []
    const [, oaHash] = /^oaHash +(\w+)$/m.exec(added) ?? []
    const addresses = {
      webhookUrl: `${base}/api/line/${id}`,
      callbackUrl: `${base}/api/mbox/callback/${oaHash}`,
    }
    for (const [name, url] of Object.entries(addresses))
      expect(added).toMatch(new RegExp(`^${name} +${url.replaceAll(/[[\].]/g, '\\$&')}$`, 'm'))
    const shown = (await runCommand(['accounts', 'show', id as string, '--json'], withEnv)).stdout
    expect(JSON.parse(shown)).toMatchObject(addresses)
  },
)

it('sets every field that an option of accounts add names', async () => {
  const { organizationId } = await addSecretAccount()
  const options = {
    name: 'Full',
    channel_id: '2000000001',
    channel_secret: 's1',
    channel_access_token: 't1',
    bot_user_id: `U${'0'.repeat(32)}`,
    basic_id: '@full',
    chat_secret: 's2',
    chat_inbox_id: '3',
    oa_hash: 'hash-of-full',
    tracking_key: 'key-of-full',
    login_channel_ids: '2000000002,2000000003',
  }
  const given = Object.entries(options).flatMap(([name, value]) => [`--${name.replaceAll('_', '-')}`, value])
  const { id } = await json('accounts', 'add', '--organization', String(organizationId), ...given)
  const [stored] = await database.query('select * from official_account where id = $1', [id])
  const login_channel_ids = ['2000000002', '2000000003']
  expect(stored).toMatchObject({ ...options, login_channel_ids, organization_id: organizationId })
})

const update = async (idText: string, options: string[], input: string) =>
  runCommand(['accounts', 'update', idText, ...options], env, { input })

it('a secret given as - is read from standard input, one line each in the order of the options', async () => {
  const { id, idText } = await addSecretAccount()
  const options = '--chat-secret - --name Bar --channel-secret - --channel-access-token=-'.split(' ')
  const { status } = await update(idText, options, 'new chat secret\r\nnew-channel-secret\nnew-token')
  expect(status).toBe(0)
  const [updated] = await database.query('select * from official_account where id = $1', [id])
  expect(updated).toMatchObject({
    name: 'Bar',
    chat_secret: 'new chat secret',
    channel_secret: 'new-channel-secret',
    channel_access_token: 'new-token',
  })
})

it.each([
  ['is missing', ''],
  ['is empty', '\nthe next line\n'],
])('a secret given as - is refused with one line when its line %s', async (_, input) => {
  const { idText } = await addSecretAccount()
  const { status, stderr } = await update(idText, ['--channel-secret', '-'], input)
  expect(status).toBe(1)
  expect(stderr).toMatch(/^oa-audience: standard input has no line for --channel-secret\. .+\n$/)
})

it('shows the identifiers of an account but only the presence of its secrets', async () => {
  const { idText, oaHash, trackingKey } = await addSecretAccount()
  const { stdout } = await runCommand(['accounts', 'show', idText, '--json'], env)
  expect(JSON.parse(stdout)).toMatchObject({ oaHash, trackingKey, hasChannelSecret: true })
  for (const secret of ['the-channel-secret', 'the-access-token', 'the-chat-secret'])
    expect(stdout).not.toContain(secret)
})

it.each(['clients', 'keys', 'accounts'])('prints no secret in the list of %s', async (group) => {
  const { headers, oaHash, channelSecret } = await addTenant(database)
  const { stdout } = await runCommand([group, 'list'], env)
  expect(stdout.split('\n').length).toBeGreaterThan(2)
  for (const secret of [headers['x-client-secret'], headers['x-api-key'], oaHash, channelSecret])
    expect(stdout).not.toContain(secret)
})

it('provisions rows beside rows that another program has inserted with explicit ids', async () => {
  const { database: loaded } = await createTestDatabase()
  await loaded.query(`insert into organization (id, name) values (1, 'loaded'), (7, 'loaded')`)
  await loaded.query(`insert into official_account (id, organization_id, name) values (1, 7, 'loaded')`)
  await loaded.query(`insert into api_client (id, client_id, client_secret) values (1, 'c', 's')`)
  await loaded.query(
    `insert into api_key (id, api_client_id, key, channel_oa_id, organization_id) values (1, 1, 'k', 1, 7)`,
  )
  const organizationId = await addOrganization(loaded, 'ours')
  expect(organizationId).toBe(8n)
  const account = await addAccount(loaded, organizationId, { name: 'ours' })
  const client = await addClient(loaded, null)
  const key = await addKey(loaded, client.id, account.id)
  for (const added of [account, client, key]) expect(added?.id).toBeGreaterThan(1n)
})

const expectError = async (args: readonly string[], message: string, withEnv: Record<string, string>) => {
  const { status, stderr } = await runCommand([...args], withEnv)
  expect(status).toBe(1)
  expect(stderr).toMatch(/^oa-audience: [^\n]+\n$/)
  expect(stderr).toContain(message)
}

it.each([
  [['keys', 'revoke', '999'], 'key 999 does not exist'],
  [['accounts', 'update', '1'], 'no field to change is given'],
  [['accounts', 'update', '1', '--oa-hash', 'a/b'], 'Use letters, digits and - _ . ~ only'],
  [['clients', 'revoke', 'x'], '"x" is not an id'],
  [['organizations', 'add', '--name', ''], '--name must not be empty'],
  [['events', 'list', '--account', '999'], 'account 999 does not exist'],
  [['events', 'retry', '999'], 'no failed event has the id 999'],
] as const)('an error that the user can fix is one line and exit code 1 %j', async (args, message) => {
  await expectError(args, message, env)
})

it.each([
  [
    'postgres://127.0.0.1:1/x',
    'the database at 127.0.0.1:1 cannot be used: connect ECONNREFUSED 127.0.0.1:1. Start it, or correct DATABASE_URL.',
  ],
  [
    'postgres://me:secret@no-such-host.invalid/x',
    'the database at no-such-host.invalid:5432 cannot be used: getaddrinfo ENOTFOUND no-such-host.invalid',
  ],
  ['postgres://db/oa?sslrootcert=/missing.pem', 'the file /missing.pem in sslrootcert, which cannot be read'],
  [env.DATABASE_URL.replace('/test_', '/missing_'), 'does not exist. Start it, or correct DATABASE_URL.'],
  ['none', 'needs a database'],
])('an error that the user can fix is one line and exit code 1 for the database %s', async (url, message) => {
  await expectError(['clients', 'list'], message, { DATABASE_URL: url })
})
