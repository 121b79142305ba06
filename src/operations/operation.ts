/**
 * What an operation is: who may run it, what it takes, and what it does. One definition serves the console (console/operation-routes.ts),
 * the command line (cli/operation-commands.ts), docs/roles.md and the tests that try each operation as each role.
 */
import type { Verifier } from '../accounts/verify.ts'
import type { ErasureLedger } from '../audience/erasure/erasure-ledger.ts'
import type { EndpointTester } from '../endpoints/test-delivery.ts'
import type { AccountId, OrganizationId } from '../ids.ts'
import type { LineApi } from '../line-api/client.ts'
import { type Action, type Changes, type ObjectKind, recordActivity } from '../operators/activity.ts'
import type { Actor, Role } from '../operators/actor.ts'
import type { Queryable, Transactions } from '../postgres/statement.ts'
import type { ChannelTester } from '../watch/notifications/history.ts'
import { checkerOf, type Fields, type InputOf } from './fields.ts'

export interface Target {
  id: bigint
  /** null: it concerns no single organization */
  organizationId: OrganizationId | null
  accountId?: AccountId | null
}

export interface Noun<T extends Target = Target> {
  kind: ObjectKind
  word: string
  /** its path in the console, and its group of commands */
  plural: string
  /** A replica may serve the reads, of the object as well. Reads without a target may be old in any case. */
  mayBeOld?: boolean
  /** Throws NotVisible for what does not exist, and for what the actor does not see. */
  find: (database: Queryable, actor: Actor, id: bigint) => Promise<T>
}

export interface Services {
  now: () => number
  endpointTester: EndpointTester
  channelTester: ChannelTester
  /** base URLs of this service's API, where an endpoint would be a loop */
  ownUrls: () => URL[]
  canEmail: boolean
  /** proves channel secrets; null: store them unproven */
  lineApi: LineApi | null
  /** calls LINE for an account */
  verifier: Omit<Verifier, 'database'>
  /** null: erasures are recorded in the database only */
  erasureLedger: () => Promise<ErasureLedger | null>
  /** of this service, as operators enter it on other platforms */
  baseUrl: string
  /** Runs a count, which takes seconds. The console limits those of one operator, and of the operators of one organization. */
  counted: <T>(actor: Actor, count: () => Promise<T>) => Promise<T>
}

/** Rows of a page, in the console. */
export const PAGE_SIZE = 50

export interface Page {
  /** the id after which the page begins; null: the first page */
  after: bigint | null
  limit: number
}

interface Context<D, T, F extends Fields, S extends keyof Services> {
  database: D
  actor: Actor
  target: T
  input: InputOf<F>
  services: Pick<Services, S>
}

export interface Outcome<R> {
  result?: R
  /** For the activity log. Undefined: it records the action alone. Null or empty: nothing, because nothing changed or something else records it. */
  changes?: Changes | null
  job?: bigint | null
}

interface Described<F extends Fields> {
  /** `endpoint.pause` is POST /api/endpoints/:id/pause and `endpoints pause <id>`: see routeOf */
  name: string
  /** by default, viewers read and managers change */
  role?: Role
  /** for docs/roles.md */
  does: string
  /** of the command; without it, the command is written apart, or there is none */
  help?: string
  /** It has no target, as lists and additions. */
  isOfAll?: boolean
  input?: F
}

interface Reading<T, F extends Fields, R, S extends keyof Services> extends Described<F> {
  run: (context: Context<Queryable, T, F, S>, page: Page) => Promise<R>
}

interface Recorded {
  records: Action
  /** the new state, as the command prints it; by default, the end of `records` */
  status?: string
}

interface Addition<F extends Fields, R, S extends keyof Services> extends Described<F>, Recorded {
  run: (context: Context<Queryable, null, F, S>) => Promise<Outcome<R> & { target: Target }>
}

interface Change<D, T, F extends Fields, R, S extends keyof Services> extends Described<F>, Recorded {
  run: (context: Context<D, T, F, S>) => Promise<Outcome<R> | undefined>
}

type Way = 'read' | 'list' | 'add' | 'change' | 'call'

/** The name, the way and the fields are types of their own, so that the pages can call it by name: see web/operations.ts. */
export interface Operation<R = unknown, N = string, F extends Fields = Fields, W = Way>
  extends Required<Omit<Described<F>, 'help' | 'isOfAll'>> {
  name: N & string
  way: W
  noun: Noun
  /** It receives no other services. */
  needs: Array<keyof Services>
  hasTarget: boolean
  help: string | null
  records: Action | null
  status: string
  /** of a list: what the command prints of an item in a table */
  row: (item: never) => object
  /** of a list: it is short, and has no pages */
  isWhole: boolean
  /** Validates input whose ids are texts. Throws `invalid_input`. */
  check: (input: unknown) => object
  run: (context: never, page: Page) => Promise<unknown>
  /** only for types: what it returns */
  result?: R
}

/** @param needs services of these operations */
export function operationsOf<T extends Target, S extends keyof Services = never>(
  noun: Noun<T>,
  ...needs: S[]
) {
  type None = Record<never, never>
  type Given = Described<Fields> & Partial<Recorded> & { run: unknown }
  const define = <R, N, F extends Fields, W extends Way>(way: W, given: Given): Operation<R, N, F, W> => {
    const { name, records = null, input = {} } = given
    return {
      role: way === 'read' || way === 'list' ? 'viewer' : 'manager',
      help: null,
      row: (item: object) => item,
      isWhole: false,
      ...given,
      way,
      noun,
      needs,
      records,
      input,
      check: checkerOf(input),
      hasTarget: way !== 'add' && !name.endsWith('.list') && !given.isOfAll,
      status: given.status ?? records?.split('.')[1] ?? '',
    } as unknown as Operation<R, N, F, W>
  }
  return {
    read: <const N extends string, R, F extends Fields = None>(given: Reading<T, F, R, S> & { name: N }) =>
      define<R, N, F, 'read'>('read', given),

    /** Reads one row more than the limit of the page if another page follows. */
    list: <const N extends string, R extends { id: bigint }, F extends Fields = None>(
      given: Reading<T, F, R[], S> & { name: N; row?: (item: R) => object; isWhole?: boolean },
    ) => define<R[], N, F, 'list'>('list', given),

    /** A change that has no target before. */
    add: <const N extends string, R, F extends Fields = None>(given: Addition<F, R, S> & { name: N }) =>
      define<R, N, F, 'add'>('add', given),

    /** Works in one transaction, which also writes the row of the activity log. */
    change: <const N extends string, R = undefined, F extends Fields = None>(
      given: Change<Queryable, T, F, R, S> & { name: N },
    ) => define<R, N, F, 'change'>('change', given),

    /** Asks another server, so it works outside of a transaction, and is recorded when it has ended. */
    call: <const N extends string, R, F extends Fields = None>(
      given: Change<Transactions, T, F, R, S> & { name: N },
    ) => define<R, N, F, 'call'>('call', given),
  }
}

const FIRST_PAGE: Page = { after: null, limit: PAGE_SIZE }

interface ReadCall {
  database: Queryable
  actor: Actor
  services: Services
  id?: bigint | null
  input?: object
  page?: Page | undefined
}

interface Call extends ReadCall {
  database: Transactions
  /** for reads that a replica may serve */
  reads?: Queryable
}

async function run(operation: Operation, { id = null, input = {}, page = FIRST_PAGE, ...call }: ReadCall) {
  const { noun, hasTarget, needs } = operation
  const services = Object.fromEntries(needs.map((name) => [name, call.services[name]]))
  const target = hasTarget && id !== null ? await noun.find(call.database, call.actor, id) : null
  return { target, returned: await operation.run({ ...call, target, input, services } as never, page) }
}

/** Runs a read in a session that need not be able to write. */
export const read = async <R>(operation: Operation<R>, call: ReadCall) =>
  (await run(operation, call)).returned as R

/** Runs an operation for an actor who has its role. Throws NotVisible for a target that the actor does not see. */
export async function perform<R>(operation: Operation<R>, call: Call): Promise<Outcome<R>> {
  const { way, hasTarget, noun } = operation
  const { reads = call.database, ...given } = call
  const { database, actor } = given
  if (way === 'read' || way === 'list') {
    const source = hasTarget && !noun.mayBeOld ? database : reads
    return { result: await read(operation, { ...given, database: source }) }
  }
  const runOn = async (queryable: Queryable): Promise<Outcome<R>> => {
    const { target, returned } = await run(operation, { ...given, database: queryable })
    const outcome = (returned ?? {}) as Outcome<R> & { target?: Target }
    const recorded = record(queryable, operation, actor, outcome.target ?? target, outcome.changes)
    if (way === 'call') await recorded
    // Not awaited, so that it is sent together with the commit. If it fails, so does the commit, which reports the error.
    else recorded?.catch(() => undefined)
    return outcome
  }
  return way === 'call' ? runOn(database) : database.transaction(runOn)
}

function record(
  database: Queryable,
  { noun, records, name }: Operation,
  actor: Actor,
  target: Target | null,
  given: Changes | null | undefined,
): Promise<void> | null {
  const changes = given ?? {}
  if (given !== undefined && Object.keys(changes).length === 0) return null
  if (target === null || records === null) throw new Error(`${name} does not say what it has changed`)
  const { id, organizationId, accountId = null } = target
  const object = { kind: noun.kind, id }
  return recordActivity(database, actor, { action: records, object, organizationId, accountId, changes })
}

/** The name of a list in a response: `endpoint.list` has `endpoints`, and `client.keys` has `keys`. */
export function itemsNameOf({ name, noun }: Operation): string {
  const verb = name.slice(name.indexOf('.') + 1)
  return verb === 'list' ? noun.plural : verb
}

/** The route in the console. The verbs `list`, `show` and `add` are not part of the path. */
export function routeOf({ name, way, hasTarget, noun }: Operation): { method: 'GET' | 'POST'; path: string } {
  const verb = name.slice(name.indexOf('.') + 1)
  const rest = ['list', 'show', 'add'].includes(verb) ? '' : `/${verb}`
  const method = way === 'read' || way === 'list' ? 'GET' : 'POST'
  return { method, path: `/${noun.plural}${hasTarget ? '/:id' : ''}${rest}` }
}
