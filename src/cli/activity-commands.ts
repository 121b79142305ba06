/** `oa-audience activity`: who changed what. */
import type { Command } from 'commander'
import { FatalError } from '../errors.ts'
import { INT64_MAX } from '../http/path-id.ts'
import { ALL_ORGANIZATIONS } from '../operators/actor.ts'
import {
  type Activity,
  type ActivityFilter,
  exportActivity,
  listActivity,
} from '../operators/list-activity.ts'
import { between, onDatabase, parseId, withJson } from './input.ts'
import { printJson, printMany } from './io.ts'

const LIST_DEFAULT = 50
const LIST_MAX = 10_000

interface FilterOptions {
  account?: bigint
  operator?: bigint
  action?: string
  since?: string
  until?: string
}

export function activityCommand(program: Command): void {
  const group = program.command('activity').description('show who changed what')

  withFilter(withJson(group.command('list')))
    .description('list the newest changes')
    .option('--limit <count>', 'maximum number of changes', between(1, LIST_MAX), LIST_DEFAULT)
    .action(async ({ limit, json, ...options }: FilterOptions & { limit: number; json?: boolean }) => {
      const filter = filterOf(options)
      const rows = await onDatabase((database) =>
        listActivity(database, ALL_ORGANIZATIONS, filter, { beforeId: INT64_MAX, limit }),
      )
      if (json) printJson(rows)
      else printMany(rows.map(lineOf), false)
    })

  withFilter(group.command('export'))
    .description('print all changes as NDJSON, the newest first')
    .action(async (options: FilterOptions) => {
      const filter = filterOf(options)
      await onDatabase((database) =>
        database.session(async (session) => {
          for await (const rows of exportActivity(session, ALL_ORGANIZATIONS, filter)) rows.forEach(printJson)
        }),
      )
    })
}

function withFilter(command: Command): Command {
  return command
    .option('--account <id>', 'only changes of this account', parseId)
    .option('--operator <id>', 'only changes by this operator', parseId)
    .option('--action <action>', 'only this action or those that begin with it, such as endpoint.')
    .option('--since <time>', 'from this time on, such as 2026-11-01 or 2026-11-01T09:00Z', parseTime)
    .option('--until <time>', 'before this time', parseTime)
}

/** Without a zone, a time is UTC. */
function parseTime(text: string): string {
  const time = Date.parse(/^\d{4}-\d\d-\d\dT[\d:.]+$/.test(text) ? `${text}Z` : text)
  if (Number.isNaN(time)) throw new FatalError(`"${text}" is not a time. Write it as 2026-11-01T09:00Z.`)
  return new Date(time).toISOString()
}

const filterOf = ({ account, operator, action, since, until }: FilterOptions): ActivityFilter => ({
  accountId: account ?? null,
  operatorId: operator ?? null,
  action: action ?? null,
  from: since ?? null,
  to: until ?? null,
})

const lineOf = ({ occurredAt, actor, action, accountId, objectKind, objectId, changes }: Activity) => ({
  time: occurredAt,
  who: actor,
  action,
  account: accountId,
  object: objectId === null ? objectKind : `${objectKind} ${objectId}`,
  changes: Object.keys(changes).join(', '),
})
