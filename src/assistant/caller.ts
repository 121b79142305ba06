/**
 * Runs the calls of an assistant, one at a time:
 *
 * 1. Find the tool, and check the arguments.
 * 2. Read, in a session in which PostgreSQL refuses every change.
 * 3. Refuse a result of more than RESULT_MAX_BYTES.
 * 4. Write the call to the activity log. Without this row, nothing is returned.
 */
import { AppError, NotVisible } from '../errors.ts'
import { toJson } from '../ids.ts'
import { recordActivity } from '../operators/activity.ts'
import type { Actor } from '../operators/actor.ts'
import type { Database } from '../postgres/database.ts'
import {
  DatabaseBusy,
  DatabaseUnavailable,
  READ_ONLY,
  STATEMENT_TIMEOUT,
  sqlStateOf,
} from '../postgres/faults.ts'
import { statement } from '../postgres/statement.ts'
import { absent, type Tool, type ToolContext, type ToolResult, visible } from './tool.ts'
import { TOOLS } from './tools.ts'

/** Bytes of one result as JSON: some 20,000 tokens of a model's context. */
export const RESULT_MAX_BYTES = 64 * 1024

export interface CallerParts extends Pick<ToolContext, 'showPersonalData' | 'examineSystem'> {
  database: Database
  actor: Actor
  /** receives errors that the assistant does not see */
  logError: (text: string) => void
}

const TOO_LARGE = { message: 'The result is too large. Ask for fewer rows with `limit`.' }

interface CallOutcome {
  isError: boolean
  result: Record<string, unknown>
  json: string
}

export const toolsFor = ({ organizationIds }: Pick<Actor, 'organizationIds'>): Tool[] =>
  TOOLS.filter(({ isForAll }) => !isForAll || organizationIds === null)

export type Caller = ReturnType<typeof createCaller>

export function createCaller({ database, actor, logError, ...context }: CallerParts) {
  const { organizationIds } = actor
  let last: Promise<unknown> = Promise.resolve()

  /** A message of the database may contain values, so only its code is logged. */
  const log = (name: string, error: unknown) => {
    const { name: kind = 'error' } = error as Error
    logError(`${name} failed (${sqlStateOf(error) ?? kind})`)
  }

  const record = (
    tool: string,
    input: unknown,
    outcome: 'answered' | 'refused' | 'failed',
    { account, object }: Pick<ToolResult, 'account' | 'object'> = {},
  ) => {
    const [only = null, ...others] = organizationIds ?? []
    const { showPersonalData } = context
    return recordActivity(database, actor, {
      action: outcome === 'answered' ? 'assistant.called' : 'assistant.refused',
      object: object ?? (account ? { kind: 'account', id: account.id } : { kind: 'assistant', id: null }),
      organizationId: account?.organizationId ?? (others.length === 0 ? only : null),
      accountId: account?.id ?? null,
      changes: { tool, outcome, arguments: recordable(input), showPersonalData },
    })
  }

  /** A refused call returns nothing that would have to be in the activity log. */
  const recordRefused = (tool: string, input: unknown = {}, outcome: 'refused' | 'failed' = 'refused') =>
    record(tool, input, outcome).catch((error) => log(tool, error))

  const run = async (called: Tool, input: unknown): Promise<CallOutcome> => {
    try {
      const result = await database.session(async (session) => {
        await session.query(refuseChanges, [STATEMENT_MAX_MS])
        return called.call({ database: session, organizationIds, ...context }, input)
      })
      const shown = written(result.facts)
      if (Buffer.byteLength(shown.json) > RESULT_MAX_BYTES) throw new AppError('invalid_input', TOO_LARGE)
      await record(called.name, input, 'answered', result)
      return { isError: false, ...shown }
    } catch (error) {
      if (isUnavailable(error)) return failure('The database does not respond. Try again later.')
      if (!isRefusal(error)) log(called.name, error)
      await recordRefused(called.name, input, isRefusal(error) ? 'refused' : 'failed')
      return failure(reasonOf(error))
    }
  }

  return {
    /** @returns null: no tool has this name */
    call: async (name: string, input: unknown): Promise<CallOutcome | null> => {
      const called = toolsFor(actor).find((each) => each.name === name)
      const done = last.then(() =>
        called === undefined ? recordRefused('unknown').then(() => null) : run(called, input),
      )
      last = done.catch(() => undefined)
      return done
    },

    idle: async (): Promise<void> => {
      await last
    },
  }
}

/** Time that a page of a fleet of 10,000 accounts may take on a busy machine. */
const STATEMENT_MAX_MS = 10_000

/** PostgreSQL refuses every change of the session, and ends a statement that takes too long. $1 milliseconds int */
const refuseChanges = statement('refuse-changes')`
    select set_config('default_transaction_read_only', 'on', false),
           set_config('statement_timeout', $1::int::text, false)`

/** Ids, which are digits, and values of closed sets. Other texts may be personal. */
const RECORDED = ['accountId', 'endpointId', 'organizationId', 'status', 'problem', 'limit', 'days']

const RECORDABLE = /^[a-z_]{1,30}$|^-?\d{1,19}$/

/** Only scalars become text: String() of an object may throw, and that of an array may be of any size. */
const isScalar = (value: unknown) => typeof value === 'string' || typeof value === 'number'

function recordable(input: unknown): Record<string, unknown> {
  if (typeof input !== 'object' || input === null) return {}
  const values = Object.entries(input).filter(
    ([name, value]) => RECORDED.includes(name) && isScalar(value) && RECORDABLE.test(String(value)),
  )
  return Object.fromEntries(values)
}

function written(result: object): Pick<CallOutcome, 'result' | 'json'> {
  const json = toJson(result)
  return { result: JSON.parse(json), json }
}

function failure(message: string): CallOutcome {
  return { isError: true, ...written({ error: message }) }
}

/** Elsewhere, READ_ONLY means that the server has become a standby. Here, a tool has tried to change something, which is a bug. */
function isUnavailable(error: unknown): boolean {
  if (error instanceof DatabaseBusy) return true
  return error instanceof DatabaseUnavailable && sqlStateOf(error) !== READ_ONLY
}

const isRefusal = (error: unknown): error is AppError =>
  error instanceof AppError && !(error instanceof DatabaseUnavailable)

/** Details of a refusal. A tool has at most seven arguments. */
const DETAILS_MAX = 10

function reasonOf(error: unknown): string {
  if (error instanceof NotVisible) return absent(error.noun).message
  if (isRefusal(error)) {
    const details = error.details?.map(({ path, message }) => visible(`${path} ${message}`)) ?? []
    return [error.message, ...details.slice(0, DETAILS_MAX)].join('; ')
  }
  if (sqlStateOf(error) === STATEMENT_TIMEOUT) return 'The database took too long. Ask for less.'
  return 'The call failed. The operator finds the reason in the standard error of this server.'
}
