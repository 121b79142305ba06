/** Says which database is unavailable, why, and what to do. */
import type { DatabaseChoice } from '../../config/config.ts'
import { parseDatabaseUrl } from '../../config/database-url.ts'

const START = 'Start it, or correct DATABASE_URL.'

/** By SQLSTATE, code of the socket, or message of pg. Our own texts, because the server's messages may contain values. */
const REASONS: Array<[pattern: RegExp, reason: string, action: string]> = [
  [/^28P01$/, 'refuses this user or password', 'Correct DATABASE_URL.'],
  [
    /^28/,
    'refuses this user, this address, or a connection without TLS',
    "Correct DATABASE_URL, for example with sslmode=verify-full, or the server's pg_hba.conf.",
  ],
  [/^3D000$/, 'has no database of this name', 'Create it, or correct DATABASE_URL.'],
  [/^53300$/, 'takes no more connections', 'Raise max_connections, or stop another program.'],
  [/^55P03$/, 'is held by another program', 'Try again when that program has ended.'],
  [/^57014$/, 'took too long to respond', 'Try again later.'],
  [/^57P03$/, 'is starting or shutting down', 'Try again later.'],
  [
    /not support SSL/,
    'does not support TLS',
    'Enable TLS on the server, or remove sslmode from DATABASE_URL.',
  ],
  [
    /CERT|UNABLE_TO_/,
    'has a TLS certificate that this machine does not trust for this name',
    "Add sslrootcert=FILE with the certificate's authority to DATABASE_URL, or use the name of the certificate.",
  ],
  [/^ENOTFOUND$|^EAI_/, 'has a host name that is not found', 'Correct DATABASE_URL, or the name server.'],
]

/** @param error DatabaseUnavailable */
export function explainUnavailable(choice: DatabaseChoice, error: Error): string {
  const cause = error.cause as (Error & { code?: string }) | undefined
  const code = cause?.code || cause?.message || error.message
  const [, reason, action] = REASONS.find(([pattern]) => pattern.test(code)) ?? [
    '',
    'does not respond',
    START,
  ]
  return choice.kind === 'url'
    ? `the database ${placeOf(choice.url.reveal())} ${reason} (${code}). ${action}`
    : `the embedded database ${reason} (${code}). Try again later.`
}

/** Hosts and ports. Without a host, pg uses one of the environment. */
function placeOf(url: string): string {
  const names = parseDatabaseUrl(url).servers.map(({ name }) => name)
  return names.some((name) => name.startsWith(':')) ? 'of DATABASE_URL' : `at ${names.join(', ')}`
}
