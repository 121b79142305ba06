/** The If-Match header: a client's condition that the member has not changed since it was read. */
import type { FastifyRequest } from 'fastify'
import { AppError } from '../errors.ts'

const VERSION = /^"([1-9]\d{0,17})"$/

/** A weak tag never matches (RFC 9110), so a client that sends one has made a mistake. */
const STRONG_TAGS = /^"[^"]*"(?:[ \t]*,[ \t]*"[^"]*")*$/

/**
 * Returns the versions that the header allows, or null for any. A tag that is not a version of this service matches nothing. Throws
 * `bad_request` for a weak tag or one without quotes, which would otherwise look like a stale version.
 */
export function readIfMatch({ headers }: FastifyRequest): bigint[] | null {
  const header = headers['if-match']?.trim()
  if (header === undefined || header === '*') return null
  if (!STRONG_TAGS.test(header)) {
    throw new AppError('bad_request', {
      message: 'If-Match must be versions in quotes, as ETag has them: "4"',
    })
  }
  const versions = header.split(',').map((tag) => VERSION.exec(tag.trim())?.[1])
  return versions.filter((version) => version !== undefined).map(BigInt)
}

// Request `Cache-Control: max-age` (RFC 9111, 5.2.1.1): the age of a response that the client accepts.

/** Returns 0 if the directive is missing, malformed or combined with `no-cache`. Such a client gets a current response. */
export function acceptedAgeMs({ headers }: FastifyRequest): number {
  const directives = (headers['cache-control'] ?? '').toLowerCase().split(',')
  const values = directives.map((directive) => directive.trim())
  const [, seconds = '0'] = values.map((value) => /^max-age="?(\d+)"?$/.exec(value)).find(Boolean) ?? []
  return values.includes('no-cache') ? 0 : Number(seconds) * 1000
}
