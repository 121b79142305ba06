/** `oa-audience operators` and `activity`: the people who may sign in to the console, and who changed what. */
import { readConfig } from '../config/config.ts'
import { localUrl } from '../http/listen.ts'
import { INT64_MAX } from '../http/path-id.ts'
import { timeOrNull } from '../http/times.ts'
import { OPERATORS } from '../operations/operators.ts'
import { ALL_ORGANIZATIONS } from '../operators/actor.ts'
import {
  type Activity,
  type ActivityFilter,
  ALL_ACTIVITY,
  exportActivity,
  listActivity,
} from '../operators/list-activity.ts'
import { type CliCommand, onDatabase, parseId } from './command.ts'
import { io, type Printable, print, printJson, printMany, printOne } from './io.ts'
import { addOperations } from './operation-commands.ts'

export function operatorsCommand(program: CliCommand): void {
  const group = program.command('operators').description('manage the people who may sign in to the console')
  addOperations(group, Object.values(OPERATORS), withLink, (result) => {
    printOne(result)
    if (!('invitation' in result)) return
    const { consoleUrl } = readConfig(io.env)
    const hint = consoleUrl === null ? ' Set CONSOLE_URL to the address of your console behind a proxy.' : ''
    print(`\nSend the link to this person. It works once, within 24 hours.${hint}`)
  })
}

/** Behind a proxy, the console has another address than the one it listens on: CONSOLE_URL. */
function withLink(result: Printable): Printable {
  if (!('invitation' in result)) return result
  const { console, consoleUrl, host } = readConfig(io.env)
  const local =
    console === null || console.port === 0 ? 'https://<the console>' : localUrl(host, console.port)
  const origin = consoleUrl ?? local
  return { ...result, invitation: `${origin}/invitation#${result.invitation}` }
}

// Who changed what.

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
    .option('--since <time>', 'from this time on, such as 2026-11-01 or 2026-11-01T09:00Z')
    .option('--until <time>', 'before this time')
}

const filterOf = ({ account, operator, action, since, until }: FilterOptions): ActivityFilter => ({
  ...ALL_ACTIVITY,
  accountId: account ?? null,
  operatorId: operator ?? null,
  action: action ?? null,
  from: timeOrNull('since', since),
  to: timeOrNull('until', until),
})

const lineOf = ({ occurredAt, actor, action, accountId, objectKind, objectId, changes }: Activity) => ({
  time: occurredAt,
  who: actor,
  action,
  account: accountId,
  object: objectId === null ? objectKind : `${objectKind} ${objectId}`,
  changes: Object.keys(changes).join(', '),
})
