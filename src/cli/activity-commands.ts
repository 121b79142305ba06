/** `oa-audience activity`: who changed what. */
import { FatalError } from '../errors.ts'
import { INT64_MAX } from '../http/path-id.ts'
import { ALL_ORGANIZATIONS } from '../operators/actor.ts'
import {
  type Activity,
  type ActivityFilter,
  exportActivity,
  listActivity,
} from '../operators/list-activity.ts'
import type { CliCommand } from './command.ts'
import { onDatabase, parseId } from './input.ts'
import { printJson, printMany } from './io.ts'

interface FilterOptions {
  account?: bigint
  operator?: bigint
  action?: string
  since?: string
  until?: string
}

export function activityCommand(program: CliCommand): void {
  const group = program.command('activity').description('show who changed what')

  withFilter(group.command('list'))
    .description('list the newest changes')
    .limited('changes')
    .onDatabase(
      (database, { limit, ...options }: FilterOptions & { limit: number }) => {
        const page = { beforeId: INT64_MAX, limit }
        return listActivity(database, ALL_ORGANIZATIONS, filterOf(options), page)
      },
      (rows) => printMany(rows.map(lineOf)),
    )

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

function withFilter(command: CliCommand): CliCommand {
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
