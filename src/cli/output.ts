/** How every command answers: a line or a table for people, JSON with --json. */
import { type Command, InvalidArgumentError } from 'commander'
import { readConfig } from '../config.ts'
import { FatalError } from '../errors.ts'
import type { Database } from '../postgres/database.ts'
import { withDatabase } from '../postgres/open.ts'

type Cell = string | number | bigint | boolean | null

export type Printable = Record<string, Cell>

/** Prints one thing: `name value` lines, or a JSON object. Ids are decimal strings. */
export function printOne(item: Printable, asJson: boolean): void {
  if (asJson) {
    printJson(item)
    return
  }
  const width = Math.max(...Object.keys(item).map((name) => name.length))
  for (const [name, value] of Object.entries(item)) console.log(`${name.padEnd(width)}  ${value ?? '-'}`)
}

/** Prints a table, or a JSON array. */
export function printMany(items: Printable[], asJson: boolean): void {
  const [first] = items
  if (asJson || first === undefined) {
    if (asJson) printJson(items)
    else console.log('none')
    return
  }
  const names = Object.keys(first)
  const rows = [names, ...items.map((item) => names.map((name) => String(item[name] ?? '-')))]
  const widths = names.map((_, column) => Math.max(...rows.map((row) => (row[column] ?? '').length)))
  for (const row of rows)
    console.log(
      row
        .map((cell, column) => cell.padEnd(widths[column] ?? 0))
        .join('  ')
        .trimEnd(),
    )
}

export function printJson(value: unknown): void {
  console.log(
    JSON.stringify(value, (_, inner: unknown) => (typeof inner === 'bigint' ? String(inner) : inner)),
  )
}

/** The database that the environment names; started for this command if it is the embedded one and idle. */
export function onDatabase<T>(work: (database: Database) => Promise<T>): Promise<T> {
  return withDatabase(readConfig().database, work)
}

/** An id given on the command line. */
export function parseId(text: string): bigint {
  if (!/^\d{1,19}$/.test(text)) throw new FatalError(`"${text}" is no id: ids are whole numbers`)
  return BigInt(text)
}

/** A number of things given on the command line. */
export function parseCount(text: string): number {
  if (!/^[1-9]\d{0,8}$/.test(text)) throw new InvalidArgumentError('It must be a whole number from 1.')
  return Number(text)
}

export const withJson = (command: Command): Command => command.option('--json', 'print JSON')
