/** Decides whether a program may run on a newer or older schema. */
import { FatalError } from '../../errors.ts'
import { type Queryable, statement } from '../statement.ts'

const selectSupport = statement('select-oldest-supported-version')`
    select oldest_supported from schema_compatibility`

/**
 * Throws a FatalError if this program is too old for the schema. Each migration that breaks older programs raises
 * `oldest_supported`, the number of the newest migration that a program must know.
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
