/** What commands take: ids, numbers, the account and the database that they work on. */
import { type Command, InvalidArgumentError } from 'commander'
import { type Account, findAccount } from '../accounts/account.ts'
import { readConfig } from '../config.ts'
import { AppError, FatalError } from '../errors.ts'
import { parsePathId } from '../http/path-id.ts'
import type { Database } from '../postgres/database.ts'
import { violatedConstraint } from '../postgres/faults.ts'
import { withDatabase } from '../postgres/open.ts'
import type { Row } from '../postgres/statement.ts'
import { skipTakenIds } from '../postgres/taken-ids.ts'

/** The database that the environment names; started for this command if it is the embedded one and idle. */
export function onDatabase<T>(work: (database: Database) => Promise<T>): Promise<T> {
  return withDatabase(readConfig().database, work)
}

/**
 * Inserts a row, and again where its id is taken: other programs may have loaded rows with ids of their own. Null: there was
 * nothing to insert.
 */
export async function insertOne<R extends Row>(
  database: Database,
  table: 'organization' | 'official_account' | 'api_client' | 'api_key',
  rest: string,
  values: unknown[],
): Promise<R | null> {
  const insert = () => database.query<R>(`insert into ${table} ${rest}`, values)
  try {
    return (await insert())[0] ?? null
  } catch (error) {
    if (violatedConstraint(error) !== `${table}_pkey`) throw error
    await skipTakenIds(database, table)
    return (await insert())[0] ?? null
  }
}

/** The account of that id. Throws a FatalError where there is none. */
export async function accountOf(database: Database, id: bigint): Promise<Account> {
  const account = await findAccount(database, id)
  if (account === null) throw new FatalError(`there is no account ${id}`)
  return account
}

/** An id given on the command line. */
export function parseId(text: string): bigint {
  const id = parsePathId(text)
  if (id === null) throw new FatalError(`"${text}" is no id: ids are whole numbers of 64 bits`)
  return id
}

/** A whole number given on the command line. */
export function between(min: number, max: number): (text: string) => number {
  return (text) => {
    const value = Number(text)
    if (!/^\d+$/.test(text) || value < min || value > max) {
      throw new InvalidArgumentError(`It must be a whole number from ${min} to ${max}.`)
    }
    return value
  }
}

export const withJson = (command: Command): Command => command.option('--json', 'print JSON')

/** Faults of the input as one line; anything else is no fault of the input. */
export function asFatal(error: unknown): FatalError {
  if (error instanceof FatalError) return error
  if (!(error instanceof AppError) || error.code === 'unavailable') throw error
  const details = error.details?.map(({ path, message }) => `${path} ${message}`).join('; ')
  return new FatalError(details ?? error.message)
}
