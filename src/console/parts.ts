/** What the console is made of. */
import type { DestinationStream } from 'pino'
import type { Verifier } from '../accounts/verify.ts'
import type { Config } from '../config.ts'
import type { Transactions } from '../postgres/statement.ts'
import type { Secret } from '../secret.ts'

export interface ConsoleParts {
  config: Pick<Config, 'logLevel' | 'trustProxy' | 'publicUrl'>
  token: Secret
  /** the console's own connection */
  database: Transactions
  /** asks LINE about an account */
  verifier: Omit<Verifier, 'database'>
  log: DestinationStream
  now: () => number
  /** what Vite built; default: dist/console of the package */
  pages?: URL
}
