/** `oa-audience members export-person`: a person's own data, to answer an access request. */
import type { Command } from 'commander'
import { FatalError } from '../errors.ts'
import { commandActor } from '../operator/actor.ts'
import { findPerson, personJson, recordPersonExport } from '../operator/exports/export-person.ts'
import type { Database } from '../postgres/database.ts'
import { isStorableText } from '../postgres/storable.ts'
import { onDatabase, parseId, parsePath, requireAccount } from './input.ts'
import { writeTexts } from './text-output.ts'

interface ExportOptions {
  account: bigint
  userId: string
  output?: string
}

export function exportPersonCommand(group: Command): void {
  group
    .command('export-person')
    .description('write everything that is stored about one person of an account as one JSON file')
    .requiredOption('--account <id>', 'id of the account', parseId)
    .requiredOption('--user-id <id>', 'user id on the platform, of a member or not')
    .option(
      '--output <file>',
      'write to this file, which only its owner can read, instead of standard output',
      parsePath,
    )
    .action((options: ExportOptions) => onDatabase((database) => exportPerson(database, options)))
}

async function exportPerson(
  database: Database,
  { account: id, userId, output }: ExportOptions,
): Promise<void> {
  const account = await requireAccount(database, id)
  const reads = database.reads.streams()
  const person = isStorableText(userId) ? await findPerson(reads, account, userId) : null
  if (person === null) throw new FatalError(`account ${id} has nothing stored about this user id`)
  await recordPersonExport(database, commandActor(), person)
  const texts = async function* () {
    for await (const { text } of personJson(reads, person)) yield text
  }
  await writeTexts(texts(), output)
}
