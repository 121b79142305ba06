/** Input of several commands: ids, numbers, an account and the database. */
import { type Command, InvalidArgumentError } from 'commander'
import { type Account, findAccount } from '../accounts/account.ts'
import { readConfig } from '../config/config.ts'
import { FatalError } from '../errors.ts'
import { parsePathId } from '../http/path-id.ts'
import type { Database } from '../postgres/database.ts'
import { withDatabase } from '../postgres/pool/open.ts'
import { io } from './io.ts'

/** Runs `work` on the configured database. Starts the embedded server for this command if it is not running. */
export function onDatabase<T>(work: (database: Database) => Promise<T>): Promise<T> {
  return withDatabase(readConfig(io.env).database, work)
}

/** Throws a FatalError if the account does not exist. */
export async function requireAccount(database: Database, id: bigint): Promise<Account> {
  const account = await findAccount(database, id)
  if (account === null) throw notFound('account', id)
  return account
}

const LISTS: Record<string, string> = { channel: 'notifications list' }

/** @param noun of a command group with `list`, such as `account` */
export function notFound(noun: string, id: bigint): FatalError {
  const list = LISTS[noun] ?? `${noun}s list`
  return new FatalError(`${noun} ${id} does not exist. Run "oa-audience ${list}" to see all ${noun}s.`)
}

export function parseId(text: string): bigint {
  const id = parsePathId(text)
  if (id === null) throw new FatalError(`"${text}" is not an id. Ids are 64-bit integers in decimal digits.`)
  return id
}

/** For an option or an argument that is given several times. */
export const collectIds = (text: string, before: bigint[] = []): bigint[] => [...before, parseId(text)]

export function between(min: number, max: number): (text: string) => number {
  return (text) => {
    const value = Number(text)
    if (!/^\d+$/.test(text) || value < min || value > max) {
      throw new InvalidArgumentError(`It must be a whole number from ${min} to ${max}.`)
    }
    return value
  }
}

/** For files and directories that the command writes. A mistyped option is not a name. */
export function parsePath(text: string): string {
  if (text !== '' && !text.startsWith('-')) return text
  throw new InvalidArgumentError(
    'It is not a path, and looks like an option. Write ./ before a name that begins with -.',
  )
}

export const withJson = <C extends Command>(command: C): C => command.option('--json', 'print JSON')
