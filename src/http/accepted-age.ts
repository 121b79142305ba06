/** Request `Cache-Control: max-age` (RFC 9111, 5.2.1.1): the age of a response that the client accepts. */
import type { FastifyRequest } from 'fastify'

/** Returns 0 if the directive is missing, malformed or combined with `no-cache`. Such a client gets a current response. */
export function acceptedAgeMs({ headers }: FastifyRequest): number {
  const directives = (headers['cache-control'] ?? '').toLowerCase().split(',')
  const values = directives.map((directive) => directive.trim())
  const [, seconds = '0'] = values.map((value) => /^max-age="?(\d+)"?$/.exec(value)).find(Boolean) ?? []
  return values.includes('no-cache') ? 0 : Number(seconds) * 1000
}
