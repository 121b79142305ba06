/** Secrets that are encrypted at rest: plain text of other programs, key rotation, and the check at the start. */
import { expect, it } from 'vitest'
import { newSecret } from '../../src/endpoints/messages.ts'
import { encryptPlainSecrets } from '../../src/jobs/background.ts'
import { commandActor } from '../../src/operators/actor.ts'
import { rotateSecrets } from '../../src/upkeep/change-secrets.ts'
import { requireReadableSecrets } from '../../src/upkeep/stored-secrets.ts'
import { lineEvent, randomUserId } from '../../tools/simulator/events.ts'
import type { TextDatabase } from '../../tools/text-database.ts'
import { runCommand } from '../support/command.ts'
import { addTenant, type Tenant } from '../support/database.ts'
import { load } from '../support/load.ts'
import { SILENT_LOG } from '../support/notifications.ts'
import { createEncrypted, newKey, valuesByKey } from '../support/secret-keys.ts'
import { type Service, startApp } from '../support/service.ts'

const encrypt = (database: TextDatabase) => encryptPlainSecrets(database, SILENT_LOG)

const storedSecret = async (database: TextDatabase, { accountId }: Pick<Tenant, 'accountId'>) => {
  const [row] = await load<{ secret: string; version: bigint }>(
    database,
    'select channel_secret as secret, credentials_version as version from official_account where id = $1',
    [accountId],
  )
  return row as { secret: string; version: bigint }
}

const deliver = async (service: Service, tenant: Tenant) =>
  (await service.deliver(tenant, [lineEvent('follow', randomUserId())])).status

/** As another program stores accounts and endpoints. */
async function insertPlain(plain: TextDatabase): Promise<Tenant> {
  const tenant = await addTenant(plain, { chatSecret: 'a chat secret', channelAccessToken: 'a token' })
  await load(
    plain,
    `insert into endpoint (channel_oa_id, url, format, secret, previous_secret)
     values ($1, 'https://example.com', 'members', $2, $3)`,
    [tenant.accountId, newSecret(), newSecret()],
  )
  await load(
    plain,
    `insert into notification_channel (format, target, secret) values ('webhook', 'https://example.com', $1)`,
    [newSecret()],
  )
  return tenant
}

it('plain text of another program works immediately, is encrypted, and the cached account stays valid', async () => {
  const { plain, database } = await createEncrypted()
  const tenant = await insertPlain(plain)
  const service = await startApp(database)
  expect(await deliver(service, tenant)).toBe(200)
  await load(plain, `update account_check set due_at = 'infinity'`)
  const { version } = await storedSecret(plain, tenant)
  expect(await encrypt(database)).toBe(7)
  const after = await storedSecret(plain, tenant)
  expect(after.secret).toMatch(/^enc:v1:2026a:/)
  expect(after.version).toBe(version)
  expect(await load(plain, `select from account_check where due_at < 'infinity'`)).toEqual([])
  expect(await deliver(service, tenant)).toBe(200)
  expect(await valuesByKey(database)).toEqual({ '2026a': 7 })
  expect(await encrypt(database)).toBe(0)
  // Another secret still makes the cached account stale.
  await load(plain, `update official_account set channel_secret = 'another' where id = $1`, [
    tenant.accountId,
  ])
  expect((await storedSecret(plain, tenant)).version).not.toBe(version)
  expect(await deliver(service, tenant)).toBe(403)
  expect(await deliver(service, { ...tenant, channelSecret: 'another' })).toBe(200)
})

it('plain text of another program is encrypted although PostgreSQL refuses another row and a program has locked a third one', async () => {
  const { plain, database } = await createEncrypted()
  const tenants = [await addTenant(plain), await addTenant(plain), await addTenant(plain)]
  const [broken, held, other] = tenants as [Tenant, Tenant, Tenant]
  await load(
    plain,
    `alter table official_account add constraint other_program check (id <> ${broken.accountId} or channel_secret not like 'enc:%')`,
  )
  await plain.transaction(async (transaction) => {
    await transaction.query(
      `update official_account set channel_secret = 'changed meanwhile' where id = $1`,
      [held.accountId],
    )
    expect(await encrypt(database)).toBe(1)
  })
  expect((await storedSecret(plain, other)).secret).toMatch(/^enc:v1:/)
  expect((await storedSecret(plain, held)).secret).toBe('changed meanwhile')
  expect(await encrypt(database)).toBe(1)
  const { secret } = await storedSecret(plain, held)
  const { secretKeys } = database
  expect(secretKeys.decrypt('official_account.channel_secret', held.accountId, secret)).toBe(
    'changed meanwhile',
  )
  expect((await storedSecret(plain, broken)).secret).toBe(broken.channelSecret)
})

it('the previous secret of an endpoint is decrypted with its new column after the new one is discarded', async () => {
  const { plain, database, env } = await createEncrypted()
  const { accountId } = await addTenant(plain)
  const endpoints = async (...args: string[]) =>
    JSON.parse((await runCommand(['endpoints', ...args, '--json'], env)).stdout)
  const account = ['--account', String(accountId), '--format', 'members']
  const { id, secret } = await endpoints('add', ...account, '--url', 'https://a.example/')
  await endpoints('rotate', id)
  await endpoints('rotate', id, '--discard')
  const [stored] = await load<{ secret: string }>(plain, 'select secret from endpoint where id = $1', [id])
  expect(database.secretKeys.decrypt('endpoint.secret', BigInt(id), stored?.secret ?? '')).toBe(secret)
})

it('a rotation encrypts everything under the first key while deliveries arrive, and is recorded once with counts only', async () => {
  const { plain, database, keys, withKeys, env } = await createEncrypted()
  const tenants = [await insertPlain(plain), await insertPlain(plain)]
  await encrypt(database)
  const versions = await Promise.all(tenants.map((tenant) => storedSecret(plain, tenant)))
  await insertPlain(plain)
  // 1. The new key at the end, on all instances. 2. The new key first, on one instance after the other.
  const newer = newKey('2027a')
  const [older, rotated] = [withKeys(`${keys},${newer}`), withKeys(`${newer},${keys}`)]
  const services = [await startApp(older), await startApp(rotated)]
  let isDone = false
  const delivering = (async () => {
    const statuses: number[] = []
    while (!isDone || statuses.length < 8) {
      for (const service of services)
        for (const tenant of tenants) statuses.push(await deliver(service, tenant))
    }
    return statuses
  })()
  const { stdout, status } = await runCommand(['secrets', 'rotate', '--json'], {
    ...env,
    SECRETS_KEYS: `${newer},${keys}`,
  })
  isDone = true
  expect({ status, ...JSON.parse(stdout) }).toEqual({ status: 0, encrypted: 21, unreadable: 0 })
  expect(new Set(await delivering)).toEqual(new Set([200]))
  expect(await valuesByKey(rotated)).toEqual({ '2027a': 21 })
  for (const [index, tenant] of tenants.entries())
    expect((await storedSecret(plain, tenant)).version).toBe(versions[index]?.version)
  // 3. The old key is removed.
  const after = withKeys(newer)
  await requireReadableSecrets(after)
  expect(await deliver(await startApp(after), tenants[0] as Tenant)).toBe(200)
  const activity = await load(
    plain,
    `select action, actor_kind, changes from activity where object_kind = 'secrets'`,
  )
  expect(activity).toEqual([
    {
      action: 'secrets.rotated',
      actor_kind: 'command',
      changes: { values: 21, unreadable: 0, keyId: '2027a' },
    },
  ])
})

it('a rotation waits for rows that another program has locked, fails with one line if they stay locked, and is continued', async () => {
  const { plain, database, keys, withKeys } = await createEncrypted()
  const [tenant] = [await addTenant(database), await addTenant(database)]
  const rotating = withKeys(`${newKey('2027a')},${keys}`)
  await plain.transaction(async (transaction) => {
    await transaction.query('select from official_account where id = $1 for update', [tenant.accountId])
    await expect(rotateSecrets(rotating, commandActor())).rejects.toThrow(
      /^1 row not changed: .* Run the command again\.$/,
    )
  })
  expect(await valuesByKey(rotating)).toEqual({ '2026a': 1, '2027a': 1 })
  await requireReadableSecrets(rotating)
  expect(await rotateSecrets(rotating, commandActor())).toEqual({ values: 1, unreadable: 0 })
})

it('the command secrets counts values by key and column, and lists what no key reads', async () => {
  const { plain, database, env } = await createEncrypted()
  const tenant = await insertPlain(plain)
  const other = await addTenant(database)
  const copied = await storedSecret(plain, other)
  await load(plain, 'update official_account set channel_access_token = $2 where id = $1', [
    tenant.accountId,
    copied.secret,
  ])
  const { stdout, status } = await runCommand(['secrets', 'status', '--json'], env)
  const unreadable = {
    column: 'official_account.channel_access_token',
    id: String(tenant.accountId),
    accountId: String(tenant.accountId),
    keyId: '2026a',
  }
  expect(status).toBe(1)
  expect(JSON.parse(stdout)).toEqual({
    firstKeyId: '2026a',
    counts: expect.arrayContaining([
      { column: 'official_account.channel_secret', keyId: null, values: 1 },
      { column: 'official_account.channel_secret', keyId: '2026a', values: 1 },
      { column: 'endpoint.previous_secret', keyId: null, values: 1 },
    ]),
    unreadable: [unreadable],
  })
  expect((await runCommand(['secrets', 'status'], env)).stdout).toContain(
    'official_account.channel_access_token',
  )
  // The console and commands replace a value that nothing reads.
  const secrets = ['--channel-secret', '-', '--channel-access-token', '-']
  const stored = await runCommand(['accounts', 'update', String(tenant.accountId), ...secrets], env, {
    input: `${tenant.channelSecret}\na-new-token\n`,
  })
  expect(stored.status).toBe(0)
  const rotated = await runCommand(['secrets', 'rotate', '--json'], env)
  expect(JSON.parse(rotated.stdout)).toEqual({ encrypted: 6, unreadable: 0 })
  const none = await runCommand(['secrets', 'rotate'], { DATABASE_URL: env.DATABASE_URL })
  expect(none.stderr).toContain('SECRETS_KEYS is not set.')
})

it('a start is refused with one line that counts the secrets, if keys are missing or a value only looks encrypted', async () => {
  const { plain, database, withKeys, env } = await createEncrypted()
  await insertPlain(plain)
  await encrypt(database)
  await expect(requireReadableSecrets(database)).resolves.toBeUndefined()
  const refusalOf = (opened: TextDatabase) =>
    requireReadableSecrets(opened).then(String, (error) => error.message)
  const missing = await refusalOf(withKeys(newKey('2027a')))
  expect(missing).toMatch(
    /^no key of SECRETS_KEYS reads 7 stored secrets\. Add the missing key .+"oa-audience secrets status".+$/,
  )
  expect(await refusalOf(plain)).toMatch(/^SECRETS_KEYS is not set, so nothing reads 7 stored secrets\. /)
  const other = await addTenant(plain)
  await load(plain, `update official_account set chat_secret = 'enc:v1:' where id = $1`, [other.accountId])
  expect(await refusalOf(database)).toMatch(/reads 1 stored secret\. Add/)
  const doctor = await runCommand(['doctor', '--json'], env)
  expect(JSON.parse(doctor.stdout)).toContainEqual({
    check: 'secrets',
    severity: 'error',
    message: expect.stringContaining('reads 1 stored secret.'),
  })
})

it('a start reads all pages', async () => {
  const { plain, database, withKeys } = await createEncrypted()
  const { organizationId } = await addTenant(plain)
  await load(
    plain,
    `insert into official_account (organization_id, name, channel_secret, oa_hash)
     select $1, '', 'secret ' || n, 'hash ' || n from generate_series(1, 450) n`,
    [organizationId],
  )
  await rotateSecrets(database, commandActor())
  await database.session(requireReadableSecrets)
  await expect(requireReadableSecrets(withKeys(newKey('x')))).rejects.toThrow(/reads 451 stored secrets\. /)
})
