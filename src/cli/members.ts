/** `oa-audience members show`: why a member is in its current state. */
import type { Command } from 'commander'
import { FatalError } from '../errors.ts'
import { parsePathId } from '../http/path-id.ts'
import { findMember, memberTimeline } from '../operator/members.ts'
import type { Database } from '../postgres/database.ts'
import { between, onDatabase, parseId, withJson } from './input.ts'
import { printJson, printMany } from './output.ts'

const TIMELINE_DEFAULT = 50
const TIMELINE_MAX = 100_000

interface ShowOptions {
  account: bigint
  limit: number
  json?: boolean
}

export function membersCommand(program: Command): void {
  const group = program.command('members').description('inspect single members of an audience')

  withJson(group.command('show'))
    .description('show a member with the events and edits that led to its state, newest first')
    .requiredOption('--account <id>', 'id of the account', parseId)
    .option(
      '--limit <count>',
      'maximum number of events and edits',
      between(1, TIMELINE_MAX),
      TIMELINE_DEFAULT,
    )
    .argument('<user>', 'user id on the platform, or id of the member')
    .action(async (user: string, { account, limit, json }: ShowOptions) => {
      const { member, timeline } = await onDatabase((database) => show(database, account, user, limit))
      if (json) {
        printJson({ member, timeline })
        return
      }
      console.log(`${JSON.stringify(member, null, 2)}\n`)
      printMany(timeline, false)
    })
}

async function show(database: Database, account: bigint, user: string, limit: number) {
  const member = await findMember(database, account, user, parsePathId(user))
  if (member === null) throw new FatalError(`account ${account} has no member ${user}`)
  return { member, timeline: (await memberTimeline(database, account, member, limit)).entries }
}
