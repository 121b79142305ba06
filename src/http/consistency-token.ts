/**
 * The header x-consistency-token: what a client changed is in the answers to requests that send it back, also where replicas
 * answer reads.
 */
import type { FastifyReply, FastifyRequest } from 'fastify'
import { AppError, type ErrorCode } from '../errors.ts'
import type { Database } from '../postgres/database.ts'
import { PRIMARY_ONLY, type WalPosition } from '../postgres/wal-position.ts'
import { refuseInput } from './validate.ts'

export const CONSISTENCY_TOKEN = 'x-consistency-token'
/** A position of 8 bytes in base64url. */
const FORM = /^[\w-]{11}$/
/** Refusals because of what is stored, such as an earlier write whose answer was lost. Their clients read it next. */
const REFUSALS: ReadonlySet<ErrorCode> = new Set([
  'stale_version',
  'external_id_taken',
  'unknown_member',
  'erase_stale',
])

/** Sets the header of the answer to a write that `write` has committed or refused. Without replicas there is no header. */
export async function withConsistencyToken<T>(
  reply: FastifyReply,
  database: Database,
  write: Promise<T>,
): Promise<T> {
  const [outcome] = await Promise.allSettled([write])
  if (outcome.status === 'rejected' && !isRefusal(outcome.reason)) throw outcome.reason
  // The write stands, whatever becomes of the database now.
  const position = await database.position().catch(() => PRIMARY_ONLY)
  if (position !== null) reply.header(CONSISTENCY_TOKEN, encode(position))
  return write
}

/** The position that the answer must include: the latest of those in the header. Null: none. Throws `invalid_input`. */
export function readConsistencyToken({ headers }: FastifyRequest): WalPosition | null {
  const header = headers[CONSISTENCY_TOKEN]
  if (header === undefined || header === '') return null
  return String(header)
    .split(',')
    .map((token) => decode(token.trim()))
    .reduce((latest, position) => (position > latest ? position : latest))
}

function isRefusal(error: unknown): boolean {
  return error instanceof AppError && REFUSALS.has(error.code)
}

function encode(position: WalPosition): string {
  const bytes = Buffer.alloc(8)
  bytes.writeBigInt64BE(position)
  return bytes.toString('base64url')
}

function decode(token: string): WalPosition {
  const position = FORM.test(token) ? Buffer.from(token, 'base64url').readBigInt64BE() : -1n
  if (position < 0 || encode(position) !== token) {
    refuseInput(
      CONSISTENCY_TOKEN,
      'names no token of an answer: send the newest ones, separated by commas, or none',
    )
  }
  return position
}
