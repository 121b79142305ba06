/**
 * The header x-consistency-token: what a client changed is in the answers to requests that send it back, also where replicas
 * answer reads.
 */
import type { FastifyReply, FastifyRequest } from 'fastify'
import type { Database } from '../postgres/database.ts'
import type { WalPosition } from '../postgres/wal-position.ts'
import { refuseInput } from './validate.ts'

export const CONSISTENCY_TOKEN = 'x-consistency-token'
/** A position of 8 bytes in base64url. */
const FORM = /^[\w-]{11}$/

/** For the answer to a write that has been committed. Without replicas there is no header. */
export async function setConsistencyToken(reply: FastifyReply, database: Database): Promise<void> {
  // The write stands, whatever becomes of the database now.
  const position = await database.position().catch(() => null)
  if (position !== null) reply.header(CONSISTENCY_TOKEN, encode(position))
}

/** The position that the answer must include. Null: none. Throws `invalid_input`. */
export function readConsistencyToken({ headers }: FastifyRequest): WalPosition | null {
  const token = headers[CONSISTENCY_TOKEN]
  if (token === undefined || token === '') return null
  const position = FORM.test(String(token)) ? Buffer.from(String(token), 'base64url').readBigInt64BE() : -1n
  if (position < 0 || encode(position) !== token) {
    refuseInput(CONSISTENCY_TOKEN, 'is not the header of an answer: send the newest one, or none')
  }
  return position
}

function encode(position: WalPosition): string {
  const bytes = Buffer.alloc(8)
  bytes.writeBigInt64BE(position)
  return bytes.toString('base64url')
}
