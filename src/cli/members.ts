/** `oa-audience members show`: why is this person in this state? */
import type { Command } from 'commander'
import { memberJson, withTrackedActivity } from '../audience/member.ts'
import { FatalError } from '../errors.ts'
import type { Database } from '../postgres/database.ts'
import { between, onDatabase, parseId, withJson } from './input.ts'
import { type Printable, printJson, printMany } from './output.ts'

const EVENTS_SHOWN = 50
const EVENTS_MAX = 100_000

interface ShowOptions {
  account: bigint
  limit: number
  json?: boolean
}

export function membersCommand(program: Command): void {
  const group = program.command('members').description('single members of an audience')

  withJson(group.command('show'))
    .description('show a member, and the events that made them what they are, newest first')
    .requiredOption('--account <id>', 'the account', parseId)
    .option('--limit <count>', 'events, at most', between(1, EVENTS_MAX), EVENTS_SHOWN)
    .argument('<user>', 'the user id on the platform, or the id of the member')
    .action(async (user: string, { account, limit, json }: ShowOptions) => {
      const { member, events } = await onDatabase((database) => show(database, account, user, limit))
      if (json) {
        printJson({ member, events })
        return
      }
      console.log(`${JSON.stringify(member, null, 2)}\n`)
      printMany(events, false)
    })
}

async function show(
  database: Database,
  account: bigint,
  user: string,
  limit: number,
): Promise<{ member: { userId: string }; events: Printable[] }> {
  const [found] = await database.query<{ json: string }>(
    `select ${memberJson} as json from audience_member m ${withTrackedActivity}
      where m.channel_oa_id = $1 and (m.user_id = $2 or m.id::text = $2)`,
    [account, user],
  )
  if (found === undefined) throw new FatalError(`account ${account} has no member ${user}`)
  const member = JSON.parse(found.json) as { userId: string }
  // The newest follow or unfollow decides the relationship, whatever the order of arrival: so they stand by when they happened.
  const events = await database.query<Printable>(
    `select to_char(occurred_at, 'YYYY-MM-DD HH24:MI:SS.MS') as "occurredAt",
            to_char(received_at, 'YYYY-MM-DD HH24:MI:SS.MS') as "receivedAt", source, kind,
            case when failure is not null then 'not applied: ' || failure
                 when user_id is distinct from $2 then 'named as joined or left'
                 when kind = 'follow' then 'relationship following'
                 when kind = 'unfollow' then 'relationship blocked'
                 when source = 'mbox' then 'conversation'
                 when source = 'tracking' then 'activity'
                 else 'seen' end as says, id
       from event
      where channel_oa_id = $1 and (user_id = $2 or other_user_ids @> array[$2])
      order by occurred_at desc, key desc limit $3`,
    [account, member.userId, limit],
  )
  return { member, events }
}
