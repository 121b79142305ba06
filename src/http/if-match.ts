/** The header If-Match: a client's "only if nobody has changed it since". */
import type { FastifyRequest } from 'fastify'

const VERSION = /^"([1-9]\d{0,17})"$/

/** The versions that it allows, or null for any. What is no version of ours matches nothing. */
export function readIfMatch({ headers }: FastifyRequest): bigint[] | null {
  const header = headers['if-match']
  if (header === undefined || header.trim() === '*') return null
  const versions = header.split(',').map((tag) => VERSION.exec(tag.trim())?.[1])
  return versions.filter((version) => version !== undefined).map(BigInt)
}
