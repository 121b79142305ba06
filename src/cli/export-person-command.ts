/** `oa-audience members export-person`: a person's own data, to answer an access request. */
import type { Command } from 'commander'
import { FatalError } from '../errors.ts'
import { ALL_ORGANIZATIONS, commandActor } from '../operator/actor.ts'
import {
  findPerson,
  type Person,
  personInAccounts,
  personJson,
  recordPersonExport,
} from '../operator/exports/export-person.ts'
import { accountsOf, findMemberships } from '../operator/members/memberships.ts'
import type { Database } from '../postgres/database.ts'
import { isStorableText } from '../postgres/storable.ts'
import { onDatabase, parseId, parsePath, requireAccount } from './input.ts'
import { writeTexts } from './text-output.ts'

interface ExportOptions {
  account: bigint
  userId: string
  allAccounts?: boolean
  output?: string
}

export function exportPersonCommand(group: Command): void {
  group
    .command('export-person')
    .description('write everything that is stored about one person of an account as one JSON file')
    .requiredOption('--account <id>', 'id of the account', parseId)
    .requiredOption('--user-id <id>', 'user id on the platform, of a member or not')
    .option('--all-accounts', 'also of every other account of which the person is a member, as a JSON array')
    .option(
      '--output <file>',
      'write to this file, which only its owner can read, instead of standard output',
      parsePath,
    )
    .action((options: ExportOptions) => onDatabase((database) => exportPerson(database, options)))
}

async function exportPerson(
  database: Database,
  { account: id, userId, allAccounts = false, output }: ExportOptions,
): Promise<void> {
  const account = await requireAccount(database, id)
  const reads = database.reads.streams()
  const record = (person: Person) => recordPersonExport(database, commandActor(), person)
  const textsOf = async function* (parts: AsyncIterable<{ text: string }>) {
    for await (const { text } of parts) yield text
  }
  if (allAccounts && isStorableText(userId)) {
    const memberships = await findMemberships(reads, ALL_ORGANIZATIONS, userId)
    const parts = personInAccounts(reads, accountsOf(account, memberships), userId, record)
    return writeTexts(textsOf(parts), output)
  }
  const person = isStorableText(userId) ? await findPerson(reads, account, userId) : null
  if (person === null) throw new FatalError(`account ${id} has nothing stored about this user id`)
  await record(person)
  await writeTexts(textsOf(personJson(reads, person)), output)
}
