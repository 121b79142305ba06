/**
 * Runs the calls of an assistant, one at a time:
 *
 * 1. Find the tool, and check the arguments.
 * 2. Read, in a session in which PostgreSQL refuses every change.
 * 3. Refuse a result of more than RESULT_MAX_BYTES.
 * 4. Write the call to the activity log. Without this row, nothing is returned.
 */
import { AppError, type Finding, NotVisible } from '../errors.ts'
import { toJson } from '../ids.ts'
import { ACCOUNT } from '../operations/accounts.ts'
import { checkerOf } from '../operations/fields.ts'
import { itemsNameOf, type Operation, read, type Services } from '../operations/operation.ts'
import { type NewActivity, recordActivity } from '../operators/activity.ts'
import type { Actor } from '../operators/actor.ts'
import type { Database } from '../postgres/database.ts'
import {
  DatabaseBusy,
  DatabaseUnavailable,
  READ_ONLY,
  STATEMENT_TIMEOUT,
  sqlStateOf,
} from '../postgres/faults.ts'
import { type Queryable, statement } from '../postgres/statement.ts'
import { showParts, visible } from './shown.ts'
import { inputOf, PAGE_DEFAULT, TOOLS, type Tool, targetOf } from './tools.ts'

/** Bytes of one result as JSON: some 20,000 tokens of a model's context. */
export const RESULT_MAX_BYTES = 64 * 1024

export interface CallerParts {
  database: Database
  actor: Actor
  services: Services
  showPersonalData: boolean
  examineSystem: () => Promise<Finding[]>
  /** receives errors that the assistant does not see */
  logError: (text: string) => void
}

const TOO_LARGE = { message: 'The result is too large. Ask for fewer rows with `limit`.' }

interface CallOutcome {
  isError: boolean
  result: Record<string, unknown>
  json: string
}

type Input = Record<string, unknown>
/** What a result is about, for the activity log. */
type Subject = Partial<Pick<NewActivity, 'object' | 'organizationId' | 'accountId'>>

export const toolsFor = ({ organizationIds }: Pick<Actor, 'organizationIds'>): Tool[] =>
  TOOLS.filter(({ examinesSystem }) => !examinesSystem || organizationIds === null)

export type Caller = ReturnType<typeof createCaller>

export function createCaller({ showPersonalData, examineSystem, logError, ...parts }: CallerParts) {
  const { database, actor } = parts
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
    { object = { kind: 'assistant', id: null }, organizationId, accountId = null }: Subject = {},
  ) => {
    const [only = null, ...others] = actor.organizationIds ?? []
    return recordActivity(database, actor, {
      action: outcome === 'answered' ? 'assistant.called' : 'assistant.refused',
      object,
      organizationId: organizationId ?? (others.length === 0 ? only : null),
      accountId,
      changes: { tool, outcome, arguments: recordable(input), showPersonalData },
    })
  }

  /** A refused call returns nothing that would have to be in the activity log. */
  const recordRefused = (tool: string, input: unknown = {}, outcome: 'refused' | 'failed' = 'refused') =>
    record(tool, input, outcome).catch((error) => log(tool, error))

  const readFrom = async (session: Queryable, called: Tool, input: Input) => {
    await session.query(refuseChanges, [STATEMENT_MAX_MS])
    const { examinesSystem, operations, parts: partsOf = (read: object) => read, object, given } = called
    if (examinesSystem) return { parts: partsOf((await examineSystem()) as never) }
    const subject = await subjectOf(session, actor, called, input)
    const read = {}
    for (const operation of operations)
      Object.assign(read, await readPage(operation, { ...parts, database: session }, { ...input, ...given }))
    return { parts: partsOf(read as never), subject: { ...subject, ...object?.(read as never) } }
  }

  const run = async (called: Tool, input: unknown): Promise<CallOutcome> => {
    try {
      const checked = checkerOf(inputOf(called))(input) as Input
      const { subject, parts } = await database.session((session) => readFrom(session, called, checked))
      const shown = written(showParts(parts, showPersonalData))
      if (Buffer.byteLength(shown.json) > RESULT_MAX_BYTES) throw new AppError('invalid_input', TOO_LARGE)
      await record(called.name, input, 'answered', subject)
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

/** The target, or else the account that the arguments name. Throws NotVisible. */
async function subjectOf(database: Queryable, actor: Actor, tool: Tool, input: Input): Promise<Subject> {
  const noun = targetOf(tool) ?? ACCOUNT
  const id = input[noun.word] as bigint | undefined
  return id === undefined
    ? {}
    : { ...(await noun.find(database, actor, id)), object: { kind: noun.kind, id } }
}

/** A list that has no pages is cut here, by the position of its rows. */
async function readPage(
  operation: Operation,
  call: { database: Queryable; actor: Actor; services: Services },
  { limit = PAGE_DEFAULT, after = null, ...given }: Input,
) {
  const { way, isWhole, noun, input } = operation
  const size = Number(limit)
  const own = Object.entries({ ...given, after }).filter(([name, value]) => name in input && value !== null)
  const page = { after: after as bigint | null, limit: way === 'list' ? size + 1 : size }
  const id = given[noun.word] as bigint | undefined
  const result = await read(operation, { ...call, id: id ?? null, input: Object.fromEntries(own), page })
  if (way !== 'list') return result as object
  const start = isWhole ? Number(after) : 0
  const rows = result as Array<{ id: bigint }>
  const shown = rows.slice(start, start + size)
  const last = isWhole ? start + size : shown.at(-1)?.id
  return {
    [itemsNameOf(operation)]: shown,
    next: rows.length > start + size ? String(last) : null,
    ...(isWhole && { matching: rows.length }),
  }
}

/** Time that a page of a fleet of 10,000 accounts may take on a busy machine. */
const STATEMENT_MAX_MS = 10_000

/** PostgreSQL refuses every change of the session, and ends a statement that takes too long. $1 milliseconds int */
const refuseChanges = statement('refuse-changes')`
    select set_config('default_transaction_read_only', 'on', false),
           set_config('statement_timeout', $1::int::text, false)`

/** Ids, which are digits, and values of closed sets. Other texts may be personal. */
const RECORDED = ['account', 'endpoint', 'organization', 'status', 'problem', 'limit']

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

/** The same for an object that does not exist and for one of another organization. */
const absent = (noun: string) =>
  `No ${noun} has this id, or it belongs to an organization that this server does not show.`

/** Details of a refusal. A tool has at most seven arguments. */
const DETAILS_MAX = 10

function reasonOf(error: unknown): string {
  if (error instanceof NotVisible) return absent(error.noun)
  if (isRefusal(error)) {
    const details = error.details?.map(({ path, message }) => visible(`${path} ${message}`)) ?? []
    return [error.message, ...details.slice(0, DETAILS_MAX)].join('; ')
  }
  if (sqlStateOf(error) === STATEMENT_TIMEOUT) return 'The database took too long. Ask for less.'
  return 'The call failed. The operator finds the reason in the standard error of this server.'
}
