/** The header x-consistency-token: a client that sends it back reads its own changes, even if a replica answers. */
import type { FastifyReply, FastifyRequest } from 'fastify'
import { AppError, type ErrorCode } from '../errors.ts'
import type { Database } from '../postgres/database.ts'
import type { WalPosition } from '../postgres/wal-position.ts'
import { refuseInput } from './validate.ts'

export const CONSISTENCY_TOKEN = 'x-consistency-token'
/** A position of 8 bytes in base64url. */
const FORM = /^[\w-]{11}$/
/** Refusals because of stored data, such as that of an earlier write whose answer was lost. The client usually reads it next. */
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
  const position = await database.position()
  if (position !== null) reply.header(CONSISTENCY_TOKEN, encode(position))
  return write
}

/** The position that the answer must include, which is the latest one in the header. Null: no header. Throws `invalid_input`. */
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
      'is not a token from an answer: send the newest tokens, separated by commas, or omit the header',
    )
  }
  return position
}
