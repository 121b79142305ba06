/** `oa-audience backup`, `restore`, `erasures`, which erases again after a restore, and `secrets`. */
import { constants, setPriority } from 'node:os'
import { resolve } from 'node:path'
import { readLedgerStatus } from '../audience/erasure/compare-ledger.ts'
import { requireLedger } from '../audience/erasure/ledger-files.ts'
import { reapplyLedger } from '../audience/erasure/reapply-erasures.ts'
import { type Config, readConfig } from '../config/config.ts'
import { FatalError } from '../errors.ts'
import { commandActor } from '../operators/actor.ts'
import { requireDatabase, withDatabase } from '../postgres/pool/open.ts'
import { backUpByDump, restoreDump } from '../upkeep/backup/dump.ts'
import { backUpServer, requireRestorable, restoreServer } from '../upkeep/backup/embedded.ts'
import { bytesOf, type Manifest, readManifest, verifyFiles } from '../upkeep/backup/files.ts'
import { type Restored, requireLaterClock } from '../upkeep/backup/revived.ts'
import { rotateSecrets } from '../upkeep/change-secrets.ts'
import { examineSecrets } from '../upkeep/stored-secrets.ts'
import { type CliCommand, parsePath } from './command.ts'
import { io, print, printError, printMany, printOne } from './io.ts'
import { withProgress } from './progress.ts'

export function backupCommand(program: CliCommand): void {
  program
    .command('backup')
    .description('back up the database to a new directory; an embedded database while the service is stopped')
    .argument('<directory>', 'new or empty directory', parsePath)
    .prints(async (path: string) => {
      const startedMs = performance.now()
      const directory = resolve(path)
      const manifest = await backUp(readConfig(io.env), directory)
      const { kind, backupAt, files } = manifest
      const seconds = secondsSince(startedMs)
      return { directory, kind, backupAt, files: files.length, bytes: bytesOf(manifest), seconds }
    })
}

async function backUp({ database: choice }: Config, directory: string): Promise<Manifest> {
  if (choice.kind === 'none') throw new FatalError('DATABASE_URL is none: this command needs a database')
  if (choice.kind === 'embedded') {
    requireDatabase(choice)
    return backUpServer(choice, directory, (text) => printError(`oa-audience: ${text}`))
  }
  return withDatabase(choice, (database) => {
    // The service's requests take precedence.
    setPriority(constants.priority.PRIORITY_BELOW_NORMAL)
    return backUpByDump(database, choice.url, directory)
  })
}

export function restoreCommand(program: CliCommand): void {
  program
    .command('restore')
    .description('verify a backup and restore it into DATA_DIR, or into the empty database of DATABASE_URL')
    .argument('<directory>', 'directory that `backup` has written', parsePath)
    .prints(
      async (path: string) => {
        const startedMs = performance.now()
        const directory = resolve(path)
        const manifest = await readManifest(directory)
        const { restoredAt, ...restored } = await restore(readConfig(io.env), directory, manifest)
        const seconds = secondsSince(startedMs)
        return { backupAt: manifest.backupAt, restoredAt, bytes: bytesOf(manifest), seconds, ...restored }
      },
      ({ backupAt, restoredAt, bytes, seconds, ...restored }) => {
        printOne({ backupAt, restoredAt, bytes, seconds })
        printNextSteps(restored)
      },
    )
}

async function restore(
  { database: choice, erasureLedger }: Config,
  directory: string,
  manifest: Manifest,
): Promise<Restored> {
  requireLaterClock(manifest)
  requireKind(choice.kind, manifest)
  if (choice.kind === 'embedded') requireRestorable(choice, manifest)
  if (erasureLedger !== null) await requireLedger(erasureLedger)
  await verifyFiles(directory, manifest)
  if (choice.kind === 'url') return restoreDump(choice, directory, manifest, erasureLedger)
  if (choice.kind === 'none') throw new FatalError('DATABASE_URL is none: this command needs a database')
  return restoreServer(choice, directory, manifest, erasureLedger)
}

function requireKind(target: Config['database']['kind'], { kind }: Manifest): void {
  if (kind === 'base' && target === 'url')
    throw new FatalError(
      'this is a backup of an embedded server. Unset DATABASE_URL to restore it into DATA_DIR.',
    )
  if (kind === 'dump' && target === 'embedded')
    throw new FatalError(
      'this is a dump of a PostgreSQL of your own. Set DATABASE_URL to an empty database to restore it.',
    )
}

function printNextSteps({ membersEndpoints, ...restored }: Omit<Restored, 'restoredAt'>): void {
  print('\nThe database is restored. All operators are signed out, and open invitations have ended. Now:')
  print(
    '1. If ERASURE_LEDGER is set, run "oa-audience erasures reapply". It erases the people again who were erased since the backup.',
  )
  printRevived(restored)
  print('3. Start the service.')
  print(
    '4. Endpoints of the format members may have lost states. Ask their owners to empty their copies before step 3. Then run:',
  )
  for (const id of membersEndpoints) print(`   oa-audience endpoints resend ${id}`)
  if (membersEndpoints.length === 0) print('   (there are none)')
  print('5. "oa-audience accounts verify ID" checks the webhook of each account.')
}

function printRevived({ revived, unreadable }: Pick<Restored, 'revived' | 'unreadable'>): void {
  if (revived === null) {
    print(
      '2. Whatever was revoked since the backup works again: clients, keys, secrets, operators and their passwords, accounts and ' +
        'endpoints. ERASURE_LEDGER is not set, so this list is not known. Revoke them again before step 3.',
    )
    return
  }
  print('2. These were revoked since the backup and work again. Revoke them again before step 3:')
  for (const { command, revokedAt } of revived) print(`   ${command}   # ${revokedAt}`)
  if (revived.length === 0) print('   (ERASURE_LEDGER has none)')
  if (unreadable > 0)
    print(`   Lines of ERASURE_LEDGER that could not be read: ${unreadable}. The list may not be complete.`)
}

const secondsSince = (startedMs: number) => Number(((performance.now() - startedMs) / 1000).toFixed(1))

export function erasuresCommand(program: CliCommand): void {
  const group = program
    .command('erasures')
    .description('compare the erasure ledger with the database, and erase again after a restore')

  group
    .command('status')
    .description('count the erasures of the ledger and the database, and those that one of them lacks')
    .onDatabase(async (database) => readLedgerStatus(database, await ledgerDirectory()))

  group
    .command('reapply')
    .description('repeat the erasures that a restored database lacks; can be interrupted and repeated')
    .onDatabase(async (database) => {
      const directory = await ledgerDirectory()
      return reapplyLedger(database, commandActor(), directory)
    })
}

async function ledgerDirectory(): Promise<string> {
  const { erasureLedger } = readConfig(io.env)
  if (erasureLedger === null)
    throw new FatalError('ERASURE_LEDGER is not set. Set it to the same directory as for the service.')
  await requireLedger(erasureLedger)
  return erasureLedger
}

export function secretsCommand(program: CliCommand): void {
  const group = program
    .command('secrets')
    .description('show and change how the secrets in the database are encrypted')

  group
    .command('status')
    .description(
      'count the stored secrets by key, and list those that no key reads; exits with 1 if there are any',
    )
    .onDatabase(async (database) => {
      const status = await database.session(examineSecrets)
      if (status.unreadable.length > 0) io.exitCode = 1
      return status
    }, printStatus)

  group
    .command('rotate')
    .description('encrypt all secrets under the first key of SECRETS_KEYS; the service keeps working')
    .onDatabase(async (database) => {
      const { values, unreadable } = await withProgress('secrets', null, (show) =>
        rotateSecrets(database, commandActor(), show),
      )
      if (unreadable > 0) io.exitCode = 1
      return { encrypted: values, unreadable }
    })
}

function printStatus({ firstKeyId, counts, unreadable }: Awaited<ReturnType<typeof examineSecrets>>): void {
  print(`first key: ${firstKeyId ?? 'none, new secrets are plain text'}`)
  printMany(counts.map(({ column, keyId, values }) => ({ column, key: keyId ?? 'plain text', values })))
  if (unreadable.length === 0) return
  print('\nno key reads:')
  printMany(
    unreadable.map(({ accountId: account, keyId: key, column, id }) => ({ column, id, account, key })),
  )
}
