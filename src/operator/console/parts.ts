import type { DestinationStream } from 'pino'
import type { Verifier } from '../../accounts/verify.ts'
import type { Config } from '../../config/config.ts'
import type { Secret } from '../../config/secret.ts'
import type { Database } from '../../postgres/database.ts'
import type { Queryable, Transactions } from '../../postgres/statement.ts'

export interface ConsoleParts extends Omit<ConsoleOptions, 'database'> {
  /** the console's own connection to the primary */
  database: Transactions
  /** for searches and the facts of accounts, which a replica may serve; results include the changes made in this console */
  reads: Queryable
}

export interface ConsoleOptions {
  config: Pick<Config, 'logLevel' | 'trustProxy' | 'publicUrl'>
  token: Secret
  database: Pick<Database, 'console' | 'reads'>
  verifier: Omit<Verifier, 'database'>
  log: DestinationStream
  now: () => number
  /** interval of the live tail; tests use a shorter one */
  heartbeatMs?: number
  /** output of Vite; default: dist/web of the package */
  pages?: URL
}
