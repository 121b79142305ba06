/** TLS of a database connection: libpq's parameters, defaults and meanings. */
import { existsSync, readFileSync, statSync } from 'node:fs'
import { homedir } from 'node:os'
import { join } from 'node:path'
import type { ConnectionOptions } from 'node:tls'
import { libpqVariable, systemAuthorities } from './libpq-variables.ts'
import { systemReason } from './system-reason.ts'

export interface DatabaseTls {
  /** false: plain text */
  ssl: ConnectionOptions | false
  /** whether the connection is plain text if the server does not offer TLS */
  isOptional: boolean
  /** for libpq's programs, which then do the same */
  parameters: Record<string, string>
}

const MODES = ['disable', 'allow', 'prefer', 'require', 'verify-ca', 'verify-full']

/** The authorities that the machine trusts: Debian and Alpine, Fedora and its relatives, macOS. */
const SYSTEM_FILES = ['certs/ca-certificates.crt', 'certs/ca-bundle.crt', 'cert.pem'].map(
  (file) => `/etc/ssl/${file}`,
)

/** A variable such as PGSSLMODE applies if the URL lacks the parameter. Throws an Error whose message continues "DATABASE_URL …". */
export function readDatabaseTls(options: Map<string, string>): DatabaseTls {
  const read = (name: string) => options.get(name) ?? libpqVariable(name)
  const named = read('sslrootcert') ?? defaultFile('root.crt')
  const sslmode = read('sslmode') ?? (named === 'system' ? 'verify-full' : 'prefer')
  if (!MODES.includes(sslmode)) throw new Error(`has an sslmode that libpq lacks: use ${MODES.join(', ')}`)
  if (sslmode === 'disable') return { ssl: false, isOptional: true, parameters: { sslmode } }
  const sslrootcert = findAuthorities(named, sslmode)
  const sslcert = read('sslcert') ?? defaultFile('postgresql.crt')
  const sslkey = sslcert && (read('sslkey') ?? defaultFile('postgresql.key'))
  if (sslcert && !sslkey) throw new Error('has sslcert, but not sslkey: name both files')
  const files = { sslrootcert, sslcert, sslkey }
  const [ca, cert, key] = Object.entries(files).map(([name, path]) => path && readFile(name, path))
  if (sslkey) requirePrivate(sslkey)
  const verified = { ca, rejectUnauthorized: ca !== undefined }
  const anyName = sslmode === 'verify-full' ? {} : { checkServerIdentity: () => undefined }
  const given = Object.entries(files).flatMap(([name, path]) => (path ? [[name, path]] : []))
  return {
    ssl: { ...verified, cert, key, ...anyName },
    isOptional: ['allow', 'prefer'].includes(sslmode),
    parameters: { sslmode, ...Object.fromEntries(given) },
  }
}

/** Undefined: nothing is verified. Without a file, verify-full trusts the machine's authorities, for which libpq wants `system`. */
function findAuthorities(file: string | undefined, sslmode: string): string | undefined {
  const isFull = sslmode === 'verify-full'
  if (file === 'system' && !isFull) throw new Error('has sslrootcert=system, which needs sslmode=verify-full')
  if (file === undefined && sslmode === 'verify-ca')
    throw new Error(
      'has sslmode=verify-ca, which needs sslrootcert: name the file with the certificates of the CA',
    )
  if (file !== 'system' && (file !== undefined || !isFull)) return file
  const system = systemAuthorities() ?? SYSTEM_FILES.find((path) => existsSync(path))
  if (system !== undefined) return system
  throw new Error(
    'trusts the authorities of this machine, which has none: install ca-certificates, or set sslrootcert',
  )
}

function defaultFile(name: string): string | undefined {
  const path = join(homedir(), '.postgresql', name)
  return existsSync(path) ? path : undefined
}

function readFile(parameter: string, path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch (error) {
    throw new Error(`names the file ${path} in ${parameter}, which cannot be read: ${systemReason(error)}`)
  }
}

/** libpq refuses a key that other users can read, which the first backup would report. */
function requirePrivate(path: string): void {
  const { mode, uid } = statSync(path)
  if ((mode & (uid === 0 ? 0o037 : 0o077)) === 0) return
  throw new Error(`names the file ${path} in sslkey, which other users can read: run chmod 600 ${path}`)
}
