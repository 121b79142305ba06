import { AppError } from '../errors.ts'
import type { Database } from '../postgres/database.ts'
import type { Intake } from './receive.ts'

/** Without a database nothing can be kept, so nothing may be acknowledged: the sender shall try again. */
export function requireDatabase(parts: { database: Database | null; intake: Intake | null }): {
  database: Database
  intake: Intake
} {
  if (parts.database === null || parts.intake === null) {
    throw new AppError('unavailable', { retryAfterSeconds: 60 })
  }
  return { database: parts.database, intake: parts.intake }
}
