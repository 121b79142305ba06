import type { FastifyRequest } from 'fastify'
import type { DestinationStream } from 'pino'
import type { Verifier } from '../accounts/verify.ts'
import type { ErasureLedger } from '../audience/erasure/erasure-ledger.ts'
import type { Config } from '../config/config.ts'
import type { Secret } from '../config/secret.ts'
import type { Route } from '../endpoints/address.ts'
import { AppError } from '../errors.ts'
import { parsePathId } from '../http/path-id.ts'
import { type Share, Shares } from '../http/shares.ts'
import type { Streamer } from '../http/streamer.ts'
import { checker, IdText } from '../http/validate.ts'
import { type Fields, objectOf } from '../operations/fields.ts'
import { PAGE_SIZE, type Services } from '../operations/operation.ts'
import type { Actor, Operator } from '../operators/actor.ts'
import type { Database } from '../postgres/database.ts'
import type { Queryable, Transactions } from '../postgres/statement.ts'
import type { ChannelTester } from '../watch/notifications/history.ts'

export interface ConsoleParts extends Omit<ConsoleOptions, 'database'> {
  /** the console's own connection to the primary */
  database: Transactions
  /** for searches and the facts of accounts, which a replica may serve; results include the changes made in this console */
  reads: Queryable
  /** The same for a download. Results include every commit before this call. */
  readsFromNow: () => Queryable
  streamer: Streamer
  counted: Services['counted']
  /** The operator of a request, checked again: see session.ts. */
  requireRole: (request: FastifyRequest) => Promise<Operator>
}

export interface ConsoleOptions {
  config: Pick<Config, 'logLevel' | 'trustProxy' | 'publicUrl' | 'smtpUrl' | 'consoleUrl'>
  /** null: only operators sign in */
  token: Secret | null
  /** header with the operator's address from a trusted proxy; null: no single sign-on */
  userHeader: string | null
  database: Pick<Database, 'console' | 'reads'>
  /** null: erasures are recorded in the database only */
  erasureLedger: ErasureLedger | null
  verifier: Omit<Verifier, 'database'>
  channelTester: ChannelTester
  /** Starts a job that was just stored at once. By default, an instance finds it within seconds. */
  onJob?: () => void
  /** base URLs of this service's API, where an endpoint would be a loop */
  ownUrls: () => URL[]
  /** By default without a proxy. */
  route?: Route
  log: DestinationStream
  now: () => number
  pages?: URL
}

/** One extra row shows whether another page follows. */
export const READ_LIMIT = PAGE_SIZE + 1

/** Cuts up to READ_LIMIT rows to one page. `next` is the last id of the page, or null on the last page. */
export function pageOf<Row extends { id: bigint }>(rows: Row[]): { items: Row[]; next: bigint | null } {
  const items = rows.slice(0, PAGE_SIZE)
  return { items, next: rows.length > PAGE_SIZE ? (items.at(-1)?.id ?? null) : null }
}

export const Id = IdText()

export const checkFields = <F extends Fields>(fields: F) => checker(objectOf(fields))

/** Throws `unknown_item` for a path parameter that is not an int64. */
export function requireId(text: string): bigint {
  const id = parsePathId(text)
  if (id === null) throw new AppError('unknown_item')
  return id
}

export const idOrNull = (text: string | undefined): bigint | null =>
  text === undefined ? null : BigInt(text)

export function found<T>(item: T | null | undefined): T {
  if (item === null || item === undefined) throw new AppError('unknown_item')
  return item
}

// Limits what one operator, and the operators of one organization, do at the same time.

const RETRY_AFTER_SECONDS = 2

export const refuseBusy = () => new AppError('busy', { retryAfterSeconds: RETRY_AFTER_SECONDS })

/**
 * The shares of an operator and of the organizations that this operator is limited to. A team shares CONSOLE_TOKEN, so its holders have
 * no limit here.
 */
export function sharesOf(
  { operatorId, organizationIds }: Actor,
  max: { operator: number; organization: number },
): Share[] {
  const ofOperator = operatorId === null ? [] : [{ key: `operator ${operatorId}`, max: max.operator }]
  const ofOrganizations = (organizationIds ?? []).map((id) => ({
    key: `organization ${id}`,
    max: max.organization,
  }))
  return [...ofOperator, ...ofOrganizations].map((share) => ({ ...share, refusal: refuseBusy }))
}

/** A count reads for up to 20 s in short statements, between which the console's connection serves other operators. */
const COUNTS_MAX = { operator: 2, organization: 4 }

export function limitCounts(): Services['counted'] {
  const shares = new Shares()
  return (operator, count) => {
    const end = shares.begin(sharesOf(operator, COUNTS_MAX))
    return count().finally(end)
  }
}
