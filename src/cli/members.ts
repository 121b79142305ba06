/** `oa-audience members show`: why is this person in this state? */
import type { Command } from 'commander'
import { memberJson, withTrackedActivity } from '../audience/member.ts'
import { FatalError } from '../errors.ts'
import { parsePathId } from '../http/path-id.ts'
import type { Database } from '../postgres/database.ts'
import { between, onDatabase, parseId, withJson } from './input.ts'
import { isoTime, type Printable, printJson, printMany } from './output.ts'

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
    .description('show a member, and the events and edits that made them what they are, newest first')
    .requiredOption('--account <id>', 'the account', parseId)
    .option('--limit <count>', 'events and edits, at most', between(1, EVENTS_MAX), EVENTS_SHOWN)
    .argument('<user>', 'the user id on the platform, else the id of the member')
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

async function show(
  database: Database,
  account: bigint,
  user: string,
  limit: number,
): Promise<{ member: { userId: string }; timeline: Printable[] }> {
  const find = async (condition: string, value: string | bigint) => {
    const [member] = await database.query<{ json: string }>(
      `select ${memberJson} as json from audience_member m ${withTrackedActivity}
        where m.channel_oa_id = $1 and ${condition}`,
      [account, value],
    )
    return member
  }
  const id = parsePathId(user)
  const found =
    (await find('m.user_id = $2', user)) ?? (id === null ? undefined : await find('m.id = $2', id))
  if (found === undefined) throw new FatalError(`account ${account} has no member ${user}`)
  const member = JSON.parse(found.json) as { id: string; userId: string }
  // The newest follow or unfollow decides the relationship, whatever the order of arrival: so they stand by when they happened.
  const timeline = await database.query<Printable>(
    `select ${isoTime('line.at')} as at, ${isoTime('line.received_at')} as "receivedAt", source, kind, says, "eventId"
       from (
         (select occurred_at as at, received_at, source, kind, id as "eventId",
                 case when failure is not null then 'not applied: ' || failure
                      when user_id is distinct from $2 then 'named as joined or left'
                      when kind = 'follow' then 'relationship following'
                      when kind = 'unfollow' then 'relationship blocked'
                      when source = 'mbox' then 'conversation'
                      when source = 'tracking' then 'activity'
                      else 'seen' end as says
            from event
           where channel_oa_id = $1 and (user_id = $2 or other_user_ids @> array[$2])
           order by occurred_at desc, key desc limit $4)
         union all
         (select e.edited_at, null, 'client', 'edit', null,
                 array_to_string(e.fields, ', ') || ' by ' || coalesce('client ' || c.client_id, 'key ' || e.api_key_id, 'a command or another program')
            from member_edit e
            left join api_key k on k.id = e.api_key_id
            left join api_client c on c.id = k.api_client_id
           where e.channel_oa_id = $1 and e.member_id = $3
           order by e.id desc limit $4)
       ) line
      order by line.at desc limit $4`,
    [account, member.userId, member.id, limit],
  )
  return { member, timeline }
}
