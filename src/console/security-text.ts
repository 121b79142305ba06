/** Where to report a vulnerability: security.txt (RFC 9116), and SECURITY.md of this version, to which it refers. */
import { readFile } from 'node:fs/promises'
import type { FastifyInstance } from 'fastify'
import { type Bugs, bugs, PACKAGE_ROOT } from '../config/package.ts'

/** RFC 9116 recommends less than a year. A version that runs for longer gives a new date with each response. */
const VALID_MS = 30 * 86_400_000

export function addressesOf(given: Bugs = {}): string[] {
  const { email, url } = typeof given === 'string' ? { url: given } : given
  return [...(email ? [`mailto:${email}`] : []), ...(url ? [url] : [])]
}

/** @param consoleUrl null: the host of each request */
export function addSecurityText(app: FastifyInstance, consoleUrl: string | null, now: () => number): void {
  app.get('/.well-known/security.txt', ({ protocol, host }, reply) => {
    const policy = `${consoleUrl ?? `${protocol}://${host}`}/SECURITY.md`
    const lines = [
      ...[...addressesOf(bugs), policy].map((address) => `Contact: ${address}`),
      `Expires: ${new Date(now() + VALID_MS).toISOString()}`,
      `Policy: ${policy}`,
      'Preferred-Languages: en',
    ]
    return reply.type('text/plain; charset=utf-8').send(`${lines.join('\n')}\n`)
  })
  app.get('/SECURITY.md', async (_request, reply) =>
    reply.type('text/plain; charset=utf-8').send(await readFile(new URL('SECURITY.md', PACKAGE_ROOT))),
  )
}
