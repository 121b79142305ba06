/** What the console is made of. */
import type { DestinationStream } from 'pino'
import type { Verifier } from '../../accounts/verify.ts'
import type { Config } from '../../config/config.ts'
import type { Secret } from '../../config/secret.ts'
import type { Database } from '../../postgres/database.ts'
import type { Queryable, Transactions } from '../../postgres/statement.ts'

/** What the routes share. */
export interface ConsoleParts extends Omit<ConsoleOptions, 'database'> {
  /** the console's own connection to the primary */
  database: Transactions
  /** for searches and the facts of accounts, which a replica may serve; they include what was changed in this console */
  reads: Queryable
}

export interface ConsoleOptions {
  config: Pick<Config, 'logLevel' | 'trustProxy' | 'publicUrl'>
  token: Secret
  database: Pick<Database, 'console' | 'reads'>
  /** asks LINE about an account */
  verifier: Omit<Verifier, 'database'>
  log: DestinationStream
  now: () => number
  /** of the live tail's streams; tests wait less */
  heartbeatMs?: number
  /** what Vite built; default: dist/web of the package */
  pages?: URL
}
