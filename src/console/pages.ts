/** Serves one HTML file for the URLs of all pages, and the scripts and styles that Vite built. */
import { existsSync, readFileSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { constants, gzip } from 'node:zlib'
import statics from '@fastify/static'
import type { FastifyInstance } from 'fastify'
import { type Bugs, bugs, PACKAGE_ROOT } from '../config/package.ts'
import { AppError } from '../errors.ts'

const YEAR_MS = 365 * 86_400_000

/** Nothing is loaded from other hosts and no inline script runs. Members' pictures would reveal to LINE whose page is open. */
const CONTENT_SECURITY_POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self' data:",
  "connect-src 'self'",
  "form-action 'self'",
  "base-uri 'none'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
  "trusted-types 'none'",
].join('; ')

const SECURITY_HEADERS = {
  'content-security-policy': CONTENT_SECURITY_POLICY,
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  'permissions-policy': 'camera=(), geolocation=(), microphone=()',
  'referrer-policy': 'no-referrer',
  'x-frame-options': 'DENY',
  'x-robots-tag': 'noindex',
}

export function setSecurityHeaders(app: FastifyInstance): void {
  app.addHook('onRequest', (_request, reply, done) => {
    reply.headers(SECURITY_HEADERS)
    done()
  })
}

/** @param directory output of Vite, as a file URL that ends with a slash */
export async function addPages(app: FastifyInstance, directory: URL): Promise<void> {
  const page = readPage(directory)
  if (page === null) app.log.warn('dist/web is missing, so the console has no pages: run "npm run build"')
  else {
    await app.register(statics, {
      root: fileURLToPath(new URL('assets/', directory)),
      prefix: '/assets/',
      // Each existing file gets a route, so no path of a request reaches the file system.
      wildcard: false,
      index: false,
      preCompressed: true,
      // The file names contain a hash of the content.
      immutable: true,
      maxAge: YEAR_MS,
    })
  }
  // All other URLs belong to pages. The router decides, because a URL has many spellings.
  for (const prefix of ['/api', '/assets']) {
    app.get(prefix, refuse)
    app.get(`${prefix}/*`, refuse)
  }
  app.setNotFoundHandler((request, reply) => {
    if (request.method !== 'GET' || page === null) throw new AppError('unknown_route')
    return reply.type('text/html; charset=utf-8').send(page)
  })
}

function refuse(): never {
  throw new AppError('unknown_route')
}

function readPage(directory: URL): Buffer | null {
  const file = new URL('index.html', directory)
  return existsSync(file) ? readFileSync(file) : null
}

// Compresses large responses. The fleet of 1,000 accounts is 1.2 MB of JSON, and 0.1 MB compressed.

const gzipped = promisify(gzip)

/** Smaller responses fit into a few packets. */
const LARGE = 16 * 1024

export function compressLargeResponses(app: FastifyInstance): void {
  app.addHook('onSend', async (request, reply, payload) => {
    if (typeof payload !== 'string' || payload.length < LARGE) return payload
    if (!/\bgzip\b/.test(String(request.headers['accept-encoding']))) return payload
    const compressed = await gzipped(payload, { level: constants.Z_BEST_SPEED })
    reply.headers({
      'content-encoding': 'gzip',
      'content-length': compressed.length,
      vary: 'accept-encoding',
    })
    return compressed
  })
}

// Where to report a vulnerability: security.txt (RFC 9116), and SECURITY.md of this version, to which it refers.

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
