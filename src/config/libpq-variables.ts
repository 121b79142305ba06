/** The variables of libpq, which also apply to the connections of this process. Beside config.ts, only this file reads the environment. */

/** @param name as in a URL: `sslmode` reads PGSSLMODE */
export const libpqVariable = (name: string): string | undefined =>
  process.env[`PG${name.toUpperCase()}`] || undefined

/** OpenSSL's variable for the authorities that the machine trusts. */
export const systemAuthorities = (): string | undefined => process.env.SSL_CERT_FILE || undefined

/** The service does not use these, and they would lead libpq's programs to another server. */
const OF_OTHER_SERVERS = /^PG(SERVICE|SERVICEFILE|HOSTADDR|TARGETSESSIONATTRS|LOADBALANCEHOSTS)$/

/** pg_dump and pg_restore get it. */
export function libpqVariables(): Record<string, string> {
  const isPassed = (name: string) => name.startsWith('PG') && !OF_OTHER_SERVERS.test(name)
  const passed = Object.entries(process.env).filter(([name]) => isPassed(name))
  return Object.fromEntries(passed) as Record<string, string>
}
