/** `oa-audience members`: why a member is in its current state, and erasures by user id. */
import type { Account } from '../accounts/account.ts'
import { ErasureLedger, LedgerUnwritable } from '../audience/erasure/erasure-ledger.ts'
import {
  findPerson,
  type Person,
  personInAccounts,
  personJson,
  recordPersonExport,
} from '../audience/export/export-person.ts'
import { readLines } from '../audience/import/text-file.ts'
import {
  accountsOf,
  eraseByUserId,
  findMember,
  findMemberships,
  memberTimeline,
  type TimelineEffect,
} from '../audience/member-details.ts'
import { readConfig } from '../config/config.ts'
import { USER_ID_MAX_LENGTH } from '../config/limits.ts'
import { systemReason } from '../config/system-reason.ts'
import { FatalError } from '../errors.ts'
import { parsePathId } from '../http/path-id.ts'
import { LINE_USER_ID } from '../ids.ts'
import { ALL_ORGANIZATIONS, commandActor } from '../operators/actor.ts'
import type { Database } from '../postgres/database.ts'
import { isStorableText } from '../postgres/storable.ts'
import { type CliCommand, onDatabase, parseId, parsePath, requireAccount } from './command.ts'
import { fileSource, io, print, printMany } from './io.ts'
import { writeParts } from './output.ts'

export function membersCommand(program: CliCommand): void {
  const group = program
    .command('members')
    .description('inspect, export and erase single people of an audience')

  group
    .command('show')
    .description('show a member with the events and edits that led to its state, newest first')
    .requiredOption('--account <id>', 'id of the account', parseId)
    .limited('events and edits')
    .argument('<user>', 'LINE user id, or id of the member')
    .onDatabase(findTimeline, ({ member, timeline }) => {
      print(`${JSON.stringify(member, null, 2)}\n`)
      printMany(
        timeline.map((entry) => ({ ...entry, changes: entry.changes && JSON.stringify(entry.changes) })),
      )
    })

  exportPersonCommand(group)

  group
    .command('erase')
    .description(
      'erase people, whether they are members or not, so that nothing older brings them back; can be repeated',
    )
    .requiredOption('--account <id>', 'id of the account', parseId)
    .option('--user-id <id...>', 'LINE user ids')
    .option('--user-ids-file <file>', 'file with one user id per line; - is standard input')
    .option('--all-accounts', 'also erase them from every other account of which they are members')
    .prints(async ({ account, userId = [], userIdsFile, allAccounts = false }: EraseOptions) => {
      const userIds = [...userId, ...(userIdsFile === undefined ? [] : await readUserIds(userIdsFile))]
      requireUserIds(userIds)
      return onDatabase((database) => erase(database, account, userIds, allAccounts))
    })
}

interface EraseOptions {
  account: bigint
  userId?: string[]
  userIdsFile?: string
  allAccounts?: boolean
}

/** A user id of USER_ID_MAX_LENGTH characters in UTF-8, and a Windows line ending. */
const USER_ID_LINE_MAX_BYTES = 4 * USER_ID_MAX_LENGTH + 1

/** Skips blank lines. A line that is too long becomes an empty user id, which is refused. */
async function readUserIds(file: string): Promise<string[]> {
  const userIds: string[] = []
  try {
    for await (const { text } of readLines(fileSource(file), USER_ID_LINE_MAX_BYTES)) {
      const userId = text?.replace(/\r$/, '')
      if (userId !== '') userIds.push(userId ?? '')
    }
  } catch (error) {
    throw new FatalError(`${file} cannot be read: ${systemReason(error)}`)
  }
  return userIds
}

/** Nobody is erased if one of the user ids is invalid. */
function requireUserIds(userIds: string[]): void {
  if (userIds.length === 0) throw new FatalError('no user id is given. Use --user-id or --user-ids-file.')
  const at = userIds.findIndex(
    (id) => id.trim() !== id || id === '' || id.length > USER_ID_MAX_LENGTH || !isStorableText(id),
  )
  if (at >= 0)
    throw new FatalError(`user id ${at + 1} of ${userIds.length} is not a user id. Nobody was erased.`)
}

/**
 * Nobody is erased if one of the user ids is a slip: LINE has no such id, and nothing is stored about it. Other programs and pages may
 * have stored ids of another form.
 */
async function requirePeople(database: Database, account: Account, userIds: string[]): Promise<void> {
  for (const [at, userId] of userIds.entries()) {
    if (LINE_USER_ID.test(userId) || (await findPerson(database, account, userId)) !== null) continue
    throw new FatalError(
      `user id ${at + 1} of ${userIds.length} is not of LINE's form (U and 32 digits 0-9 a-f), and account ${account.id} has nothing stored about it. Nobody was erased.`,
    )
  }
}

async function erase(database: Database, account: bigint, userIds: string[], isEverywhere: boolean) {
  const of = await requireAccount(database, account)
  await requirePeople(database, of, userIds)
  const eraseFrom = async (userId: string): Promise<number> => {
    const others = isEverywhere ? await findMemberships(database, ALL_ORGANIZATIONS, userId) : []
    let members = 0
    for (const each of accountsOf(of, others))
      if (await eraseByUserId(database, ledger, commandActor(), each, userId, Date.now)) members += 1
    return members
  }
  const ledger = await ErasureLedger.open(readConfig(io.env).erasureLedger)
  let members = 0
  for (const [erased, userId] of userIds.entries()) {
    members += await eraseFrom(userId).catch((error: Error) => {
      const outcome =
        error instanceof LedgerUnwritable
          ? `was erased, but not recorded (${error.message})`
          : `was not erased (${error.name})`
      throw new FatalError(`user id ${erased + 1} of ${userIds.length} ${outcome}. Run the command again.`)
    })
  }
  return { erased: userIds.length, members }
}

async function findTimeline(
  database: Database,
  user: string,
  { account, limit }: { account: bigint; limit: number },
) {
  const member = await findMember(database, account, user, parsePathId(user))
  if (member === null) throw new FatalError(`account ${account} has no member ${user}`)
  const { entries } = await memberTimeline(database, account, member, limit)
  const timeline = entries.map((entry) => ({
    ...entry,
    effect: effectText(entry.effect),
    changes: entry.effect.kind === 'edited' ? entry.effect.changes : null,
  }))
  return { member, timeline }
}

function effectText(effect: TimelineEffect): string {
  if (effect.kind === 'not_applied') return `failed: ${effect.failure}`
  if (effect.kind !== 'edited') return effect.kind
  const { fields, by } = effect
  const client = by && 'keyId' in by ? (by.clientName ?? by.clientId ?? `key ${by.keyId}`) : null
  const actor = by && 'actor' in by ? by.actor : 'another program'
  return `${fields.join(', ')} by ${client ?? actor}`
}

// A person's own data, to answer an access request.

interface ExportOptions {
  account: bigint
  userId: string
  allAccounts?: boolean
  output?: string
}

function exportPersonCommand(group: CliCommand): void {
  group
    .command('export-person')
    .description('write everything that is stored about one person of an account as one JSON file')
    .requiredOption('--account <id>', 'id of the account', parseId)
    .requiredOption('--user-id <id>', 'LINE user id, of a member or not')
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
  if (allAccounts && isStorableText(userId)) {
    const memberships = await findMemberships(reads, ALL_ORGANIZATIONS, userId)
    const parts = personInAccounts(reads, accountsOf(account, memberships), userId, record)
    await writeParts(parts, output)
    return
  }
  const person = isStorableText(userId) ? await findPerson(reads, account, userId) : null
  if (person === null) throw new FatalError(`account ${id} has nothing stored about this user id`)
  await record(person)
  await writeParts(personJson(reads, person), output)
}
