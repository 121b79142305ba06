/** A command of the program: its arguments and options, its database and its result. */
import { Command, InvalidArgumentError } from 'commander'
import { type Account, findAccount } from '../accounts/account.ts'
import { readConfig } from '../config/config.ts'
import { FatalError } from '../errors.ts'
import { parsePathId } from '../http/path-id.ts'
import type { Database } from '../postgres/database.ts'
import { withDatabase } from '../postgres/pool/open.ts'
import { io, type Printable, printJson, printMany, printOne } from './io.ts'

/** Rows of a list, which are held in memory. */
const LIMIT_MAX = 100_000

type Show<R, Given> = (result: Exclude<R, undefined>, given: Given) => void | Promise<void>

const showFlat = (result: unknown) =>
  Array.isArray(result) ? printMany(result as Printable[]) : printOne(result as Printable)

export const withJson = <C extends Command>(command: C): C => command.option('--json', 'print JSON')

/** A command that prints a result: with --json as it is, and otherwise for people. */
export class CliCommand extends Command {
  override createCommand(name?: string): CliCommand {
    return new CliCommand(name)
  }

  limited(rows: string, usual = 50): this {
    return this.option('--limit <count>', `maximum number of ${rows}`, between(1, LIMIT_MAX), usual)
  }

  /**
   * @param work gets the arguments and the options, and returns the result; undefined: nothing is printed
   * @param show by default, prints one flat object or a table of them
   */
  prints<Given extends unknown[], R>(
    work: (...given: Given) => Promise<R>,
    show: Show<R, Given> = showFlat,
  ): this {
    return withJson(this).action(async (...given: unknown[]) => {
      const result = await work(...(given as Given))
      if (result === undefined) return
      if (this.opts().json === true) printJson(result)
      else await show(result as Exclude<R, undefined>, given as Given)
    })
  }

  /** The same with the configured database as the first argument of `work`. */
  onDatabase<Given extends unknown[], R>(
    work: (database: Database, ...given: Given) => Promise<R>,
    show?: Show<R, Given>,
  ): this {
    return this.prints((...given: Given) => onDatabase((database) => work(database, ...given)), show)
  }
}

/** Runs `work` on the configured database. Starts the embedded server for this command if it is not running. */
export function onDatabase<T>(work: (database: Database) => Promise<T>): Promise<T> {
  return withDatabase(readConfig(io.env).database, work)
}

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

/** Checks the names of files and directories that the command writes. A mistyped option is not a name. */
export function parsePath(text: string): string {
  if (text !== '' && !text.startsWith('-')) return text
  throw new InvalidArgumentError(
    'It is not a path, and looks like an option. Write ./ before a name that begins with -.',
  )
}
