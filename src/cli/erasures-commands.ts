/** `oa-audience erasures`: the erasure ledger, and erasing again after a restore. */
import type { Command } from 'commander'
import { requireLedger } from '../audience/ledger-files.ts'
import type { Reapplied } from '../audience/reapply-erasures.ts'
import { readConfig } from '../config/config.ts'
import { FatalError } from '../errors.ts'
import { commandActor } from '../operator/actor.ts'
import { readLedgerStatus, reapplyLedger } from '../operator/erasures.ts'
import { onDatabase, withJson } from './input.ts'
import { io, printOne } from './io.ts'
import { Progress } from './progress.ts'

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
