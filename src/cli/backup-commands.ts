/** `oa-audience backup`, `restore`, and `erasures`, which erases again after a restore. */
import { constants, setPriority } from 'node:os'
import { resolve } from 'node:path'
import type { Command } from 'commander'
import { readLedgerStatus } from '../audience/erasure/compare-ledger.ts'
import { requireLedger } from '../audience/erasure/ledger-files.ts'
import { type Reapplied, reapplyLedger } from '../audience/erasure/reapply-erasures.ts'
import { type Config, readConfig } from '../config/config.ts'
import { FatalError } from '../errors.ts'
import { commandActor } from '../operators/actor.ts'
import { requireDatabase, withDatabase } from '../postgres/pool/open.ts'
import { backUpServer } from '../upkeep/backup/base-backup.ts'
import { backUpByDump, restoreDump } from '../upkeep/backup/dump.ts'
import { bytesOf, type Manifest, readManifest, verifyFiles } from '../upkeep/backup/manifest.ts'
import { type Restored, requireLaterClock } from '../upkeep/backup/record-restore.ts'
import { requireRestorable, restoreServer } from '../upkeep/backup/restore-server.ts'
import { onDatabase, parsePath, withJson } from './input.ts'
import { io, print, printError, printJson, printOne } from './io.ts'
import { Progress } from './progress.ts'

const MIB = 1024 * 1024

export function backupCommand(program: Command): void {
  withJson(program.command('backup'))
    .description('back up the database to a new directory; an embedded database while the service is stopped')
    .argument('<directory>', 'new or empty directory', parsePath)
    .action(async (directory: string, { json }: { json?: boolean }) => {
      const startedMs = performance.now()
      const manifest = await backUp(readConfig(io.env), resolve(directory))
      const { kind, backupAt, files } = manifest
      const seconds = secondsSince(startedMs)
      printOne(
        {
          directory: resolve(directory),
          kind,
          backupAt,
          files: files.length,
          bytes: bytesOf(manifest),
          seconds,
        },
        json === true,
      )
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

export function restoreCommand(program: Command): void {
  withJson(program.command('restore'))
    .description('verify a backup and restore it into DATA_DIR, or into the empty database of DATABASE_URL')
    .argument('<directory>', 'directory that `backup` has written', parsePath)
    .action(async (directory: string, { json }: { json?: boolean }) => {
      const startedMs = performance.now()
      const config = readConfig(io.env)
      const manifest = await readManifest(resolve(directory))
      const restored = await restore(config, resolve(directory), manifest)
      const result = {
        backupAt: manifest.backupAt,
        restoredAt: restored.restoredAt,
        bytes: bytesOf(manifest),
      }
      const seconds = secondsSince(startedMs)
      const { membersEndpoints, revived } = restored
      if (json) return printJson({ ...result, seconds, membersEndpoints, revived })
      printOne({ ...result, seconds }, false)
      printNextSteps(restored)
    })
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
  const bytes = new ByteProgress()
  try {
    bytes.start('MiB verified', bytesOf(manifest))
    await verifyFiles(directory, manifest, bytes.add)
    bytes.end()
    if (choice.kind === 'url') return await restoreDump(choice, directory, manifest, erasureLedger)
    if (choice.kind === 'none') throw new FatalError('DATABASE_URL is none: this command needs a database')
    bytes.start('MiB copied', bytesOf(manifest))
    return await restoreServer(choice, directory, manifest, erasureLedger, bytes.add)
  } finally {
    bytes.end()
  }
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

function printNextSteps({ membersEndpoints, ...restored }: Restored): void {
  print('\nThe database is restored. All operators are signed out, and open invitations have ended. Now:')
  print(
    '1. If ERASURE_LEDGER is set, run "oa-audience erasures reapply". It erases the people again who were erased since the backup.',
  )
  printRevived(restored)
  print('3. Start the service.')
  print(
    '4. Receivers of members endpoints may have lost states. Ask their owners to empty their copies before step 3. Then run:',
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
    print(`   ${unreadable} lines of ERASURE_LEDGER could not be read, so the list may not be complete.`)
}

class ByteProgress {
  #progress: Progress | null = null
  #bytes = 0

  start(unit: string, total: number): void {
    this.#bytes = 0
    this.#progress = new Progress(unit, Math.max(1, Math.floor(total / MIB)))
  }

  readonly add = (bytes: number): void => {
    this.#bytes += bytes
    this.#progress?.show(Math.floor(this.#bytes / MIB))
  }

  end(): void {
    this.#progress?.end()
    this.#progress = null
  }
}

const secondsSince = (startedMs: number) => Number(((performance.now() - startedMs) / 1000).toFixed(1))

export function erasuresCommand(program: Command): void {
  const group = program
    .command('erasures')
    .description('compare the erasure ledger with the database, and erase again after a restore')

  withJson(group.command('status'))
    .description('count the erasures of the ledger and the database, and those that one of them lacks')
    .action(async ({ json }: { json?: boolean }) => {
      const directory = await ledgerDirectory()
      printOne(await onDatabase((database) => readLedgerStatus(database, directory)), json === true)
    })

  withJson(group.command('reapply'))
    .description('repeat the erasures that a restored database lacks; can be interrupted and repeated')
    .action(async ({ json }: { json?: boolean }) => {
      const directory = await ledgerDirectory()
      printOne({ ...(await reapplyWithProgress(directory)) }, json === true)
    })
}

async function reapplyWithProgress(directory: string): Promise<Reapplied> {
  const progress = new Progress('lines compared', null)
  const show = ({ lines, erasures }: Reapplied) =>
    progress.show(lines, `, ${erasures.toLocaleString('en')} erased again`)
  try {
    return await onDatabase((database) => reapplyLedger(database, commandActor(), directory, show))
  } finally {
    progress.end()
  }
}

async function ledgerDirectory(): Promise<string> {
  const { erasureLedger } = readConfig(io.env)
  if (erasureLedger === null)
    throw new FatalError('ERASURE_LEDGER is not set. Set it to the same directory as for the service.')
  await requireLedger(erasureLedger)
  return erasureLedger
}
