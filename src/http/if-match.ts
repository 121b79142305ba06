/** The If-Match header: a client's condition that the member has not changed since it was read. */
import type { FastifyRequest } from 'fastify'

const VERSION = /^"([1-9]\d{0,17})"$/

/** The versions that the header allows, or null for any. A tag that is not a version of this service matches nothing. */
export function readIfMatch({ headers }: FastifyRequest): bigint[] | null {
  const header = headers['if-match']
  if (header === undefined || header.trim() === '*') return null
  const versions = header.split(',').map((tag) => VERSION.exec(tag.trim())?.[1])
  return versions.filter((version) => version !== undefined).map(BigInt)
}
