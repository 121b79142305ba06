/** What was revoked after a backup works again after its restore: what ends, and what the operator learns. */
import { mkdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { ErasureLedger } from '../../src/audience/erasure/erasure-ledger.ts'
import { listLedgerFiles } from '../../src/audience/erasure/ledger-files.ts'
import { recordRestore } from '../../src/upkeep/backup/revived.ts'
import { runJson } from '../support/command.ts'
import { addSignedIn, startConsole } from '../support/console.ts'
import { copyDatabase } from '../support/copies.ts'
import { addTenant, createTestDatabase } from '../support/database.ts'
import { load } from '../support/load.ts'
import { temporaryDirectory } from '../support/process.ts'

const MANIFEST = {
  ...{ kind: 'dump' as const, version: '0.2.0', postgresMajor: 18 },
  ...{ changeLimit: '3', directories: [], files: [] },
}

it('a restore ends sessions and invitations, and lists revocations since the backup that it has undone', async () => {
  const directory = join(temporaryDirectory(), 'ledger')
  mkdirSync(directory)
  const { database, connection, env } = await createTestDatabase()
  const tenant = await addTenant(database)
  const account = String(tenant.accountId)
  const command = (...args: string[]) => runJson(args, env)
  const clients = []
  for (const _ of [1, 2, 3, 4, 5, 6]) clients.push((await command('clients', 'add')).id)
  type Six = [string, string, string, string, string, string]
  const [revoked, rotated, removed, kept, revokedBefore, discarded] = clients as Six
  const key = await command('keys', 'add', '--client', kept, '--account', account)
  const short = await command('keys', 'add', '--client', kept, '--account', account)
  const url = 'https://receiver.example.com/'
  const endpoint = await command('endpoints', 'add', '--account', account, '--url', url)
  for (const id of [rotated, discarded]) await command('clients', 'rotate', id)
  await command('clients', 'revoke', revokedBefore)
  const { url: consoleUrl } = await startConsole(database)
  const owner = await addSignedIn({ url: consoleUrl, database }, { role: 'owner' })
  const leaver = await addSignedIn({ url: consoleUrl, database }, { role: 'manager' })
  const demoted = await addSignedIn({ url: consoleUrl, database }, { role: 'owner' })
  const limited = await addSignedIn({ url: consoleUrl, database }, { role: 'owner' })
  const guest = await command('operators', 'add', '--email', 'guest@example.com', '--role', 'viewer')
  const [moment] = await load<{ at: string }>(database, 'select clock_timestamp()::text as at')
  const backupAt = new Date(moment?.at ?? '').toISOString()

  const backup = await copyDatabase(connection)
  const late = (await command('clients', 'add')).id
  for (const id of [revoked, late]) await command('clients', 'revoke', id)
  await command('clients', 'rotate', rotated, '--finish')
  await command('clients', 'rotate', discarded, '--discard')
  await command('clients', 'remove', removed, '--yes')
  await command('keys', 'revoke', key.id)
  // As 0.3.0 does, in whose ledgers this revocation stays.
  await load(database, 'update api_key set expires_at = now() where id = $1', [short.id])
  await command('endpoints', 'remove', endpoint.id)
  await command('operators', 'disable', String(leaver.id))
  await command('operators', 'update', String(demoted.id), '--role', 'viewer')
  await command('operators', 'update', String(limited.id), '--organization', String(tenant.organizationId))
  await command('operators', 'disable', guest.id)
  // Another program revokes without the activity log.
  await load(database, `update api_client set status = 'blocked' where id = $1`, [kept])
  const ledger = new ErasureLedger(directory)
  await ledger.recordAll(database)
  expect(await load(database, 'select from unrecorded_revocation')).toEqual([])
  const [path = ''] = await listLedgerFiles(directory)
  expect(readFileSync(path, 'utf8')).not.toMatch(/@|https|[A-Za-z0-9_]{30}/)

  const restored = backup.open()
  const { revived } = await recordRestore(restored, { ...MANIFEST, backupAt }, directory)
  expect(revived?.map(({ command: text }) => text)).toEqual([
    `oa-audience clients revoke ${revoked}`,
    `oa-audience clients rotate ${rotated}`,
    `oa-audience clients rotate ${discarded}`,
    `oa-audience clients revoke ${removed}`,
    `oa-audience keys revoke ${key.id}`,
    `oa-audience keys revoke ${short.id}`,
    `oa-audience endpoints remove ${endpoint.id}`,
    `oa-audience operators disable ${leaver.id}`,
    `oa-audience operators update ${demoted.id} --role ROLE`,
    `oa-audience operators update ${limited.id} --role ROLE`,
    `oa-audience operators disable ${guest.id}`,
    `oa-audience clients revoke ${kept}`,
  ])
  for (const { revokedAt } of revived ?? []) expect(revokedAt > backupAt).toBe(true)
  expect(await load(restored, `select from activity where action = 'database.restored'`)).toHaveLength(1)

  const { url: restoredUrl } = await startConsole(restored)
  const former = Object.assign(owner, { url: restoredUrl })
  expect((await former.get('/api/organizations')).status).toBe(401)
  const invitation = { invitation: guest.invitation.split('#')[1] }
  expect((await former.send('/invitation', invitation)).status).toBe(404)
  expect(await load(restored, 'select from operator where invitation_hash is not null')).toEqual([])
})
