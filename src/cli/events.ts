import type { Command } from 'commander'
import { FatalError } from '../errors.ts'
import { APPLIED, retryEvent } from '../intake/retry.ts'
import type { Database } from '../postgres/database.ts'
import { accountOf, between, onDatabase, parseId, withJson } from './input.ts'
import { isoTime, type Printable, printMany, printOne } from './output.ts'

/** Rows that `events list` prints unless told otherwise. */
const LIST_DEFAULT = 50
const LIST_MAX = 100_000

const columns = `id, channel_oa_id as "accountId", source, kind, ${isoTime('occurred_at')} as "occurredAt",
       ${isoTime('received_at')} as "receivedAt", failure`

export function eventsCommand(program: Command): void {
  const group = program
    .command('events')
    .description('received events, above all those that could not be applied')

  withJson(group.command('list'))
    .description('list the newest events that were kept but could not be applied to members')
    .option('--account <id>', 'of one account alone', parseId)
    .option('--all', 'applied ones too')
    .option('--limit <count>', 'at most so many', between(1, LIST_MAX), LIST_DEFAULT)
    .action(async (options: { account?: bigint; all?: boolean; limit: number; json?: boolean }) => {
      // Not a request's statement: all events may take longer to look through than a request may.
      const rows = await onDatabase(async (database) => {
        if (options.account !== undefined) await accountOf(database, options.account)
        return database.session((session) =>
          session.query<Printable>(
            `select ${columns} from event
              where ($1::bigint is null or channel_oa_id = $1) and ($2 or failure is not null)
              order by id desc limit $3`,
            [options.account ?? null, options.all === true, options.limit],
          ),
        )
      })
      printMany(rows, options.json === true)
    })

  withJson(group.command('show'))
    .description('show one event, with what was received of it')
    .argument('<id>', 'the id that `events list` shows', parseId)
    .action(async (id: bigint, { json }: { json?: boolean }) => {
      const [event] = await onDatabase((database) =>
        database.query<Printable>(`select ${columns}, payload from event where id = $1`, [id]),
      )
      if (!event) throw new FatalError(`there is no event ${id}`)
      printOne(event, json === true)
    })

  withJson(group.command('retry'))
    .description(
      'apply events that could not be applied, as this version of the program understands them; ends with 1 if one still waits',
    )
    .argument('[id...]', 'the ids that `events list` shows; none: all of them', collectIds)
    .action(async (ids: bigint[] | undefined, { json }: { json?: boolean }) => {
      const outcomes = await onDatabase((database) => retryAll(database, ids?.length ? ids : null))
      printMany(outcomes, json === true)
      if (outcomes.some(({ outcome }) => outcome !== APPLIED)) process.exitCode = 1
    })
}

function collectIds(text: string, before: bigint[] | undefined): bigint[] {
  return [...(before ?? []), parseId(text)]
}

async function retryAll(database: Database, ids: bigint[] | null): Promise<Printable[]> {
  const failed = await database.query<{ id: bigint }>(
    `select id from event where failure is not null and ($1::bigint[] is null or id = any ($1)) order by id`,
    [ids],
  )
  const absent = ids?.filter((id) => !failed.some((row) => row.id === id)) ?? []
  if (absent.length > 0) throw new FatalError(`there is no event ${absent.join(', ')} that waits`)
  const outcomes: Printable[] = []
  for (const { id } of failed) outcomes.push({ id, outcome: await retryEvent(database, id) })
  return outcomes
}
