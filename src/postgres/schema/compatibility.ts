/** Which programs may run on a database whose schema is newer or older than theirs. */
import { FatalError } from '../../errors.ts'
import { type Queryable, statement } from '../statement.ts'

const selectSupport = statement('select-oldest-supported-version')`
    select oldest_supported from schema_compatibility`

/**
 * For a program that is older than the schema. Each migration that breaks older programs raises `oldest_supported`: the number
 * of the newest migration that a program must know to run on this database. Throws a FatalError if it knows fewer.
 */
export async function requireSupport(session: Queryable, newest: number, newestKnown: number): Promise<void> {
  const [row] = await session.query<{ oldest_supported: number }>(selectSupport)
  const oldestSupported = row?.oldest_supported ?? newest
  if (oldestSupported <= newestKnown) return
  throw new FatalError(
    `the database schema has version ${newest} and supports programs that know version ${oldestSupported}, ` +
      `but this program knows versions up to ${newestKnown}. Install the newer oa-audience again.`,
  )
}

/** For a command that must not change the schema. Throws a FatalError if a migration is missing. */
export function requireNoneMissing(missing: number[], isEmpty: boolean): void {
  if (missing.length === 0) return
  const problem = isEmpty
    ? 'the database has no schema yet'
    : `the database schema lacks migration ${missing.join(', ')}`
  throw new FatalError(`${problem}. Run "oa-audience migrate".`)
}
