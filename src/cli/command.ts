import { Command } from 'commander'
import type { Database } from '../postgres/database.ts'
import { between, onDatabase, withJson } from './input.ts'
import { type Printable, printJson, printMany, printOne } from './io.ts'

/** Rows of a list, which are held in memory. */
const LIMIT_MAX = 100_000

/** Prints a result for people. */
type Show<R, Given> = (result: Exclude<R, undefined>, given: Given) => void | Promise<void>

const showFlat = (result: unknown) =>
  Array.isArray(result) ? printMany(result as Printable[]) : printOne(result as Printable)

/** A command that prints a result: with --json as it is, and otherwise for people. */
export class CliCommand extends Command {
  override createCommand(name?: string): CliCommand {
    return new CliCommand(name)
  }

  /** Adds --limit to a list. */
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
