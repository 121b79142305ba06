/** How every command answers: a line or a table for people, JSON with --json. */
import { styleText } from 'node:util'
import { timeText } from '../audience/member.ts'

type Cell = string | number | bigint | boolean | null

export type Printable = Record<string, Cell>

/** Prints one thing: `name value` lines, or a JSON object. Ids are decimal strings. */
export function printOne(item: Printable, asJson: boolean): void {
  if (asJson) {
    printJson(item)
    return
  }
  const width = Math.max(...Object.keys(item).map((name) => name.length))
  for (const [name, value] of Object.entries(item))
    console.log(`${name.padEnd(width)}  ${forTerminal(value)}`)
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
  const rows = [names, ...items.map((item) => names.map((name) => forTerminal(item[name])))]
  const widths = names.map((_, column) => Math.max(...rows.map((row) => (row[column] ?? '').length)))
  for (const row of rows)
    console.log(
      row
        .map((cell, column) => cell.padEnd(widths[column] ?? 0))
        .join('  ')
        .trimEnd(),
    )
}

/** Control characters could rewrite the screen or forge rows, and anybody can send tracking events: they are shown as their codes. */
function forTerminal(value: Cell | undefined): string {
  return String(value ?? '-').replace(
    // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what it looks for
    /[\u0000-\u001f\u007f-\u009f]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  )
}

export function printJson(value: unknown): void {
  console.log(
    JSON.stringify(value, (_, inner: unknown) => (typeof inner === 'bigint' ? String(inner) : inner)),
  )
}

/** A time as the API writes it, in SQL, whatever the session's zone is. */
export const isoTime = (column: string): string => timeText(`${column} at time zone 'UTC'`)

/** For people who look; a pipe or a file gets the text alone. (styleText of Node 20 sees to that for one format only.) */
export function styled(format: Parameters<typeof styleText>[0], text: string): string {
  return process.stdout.isTTY ? styleText(format, text) : text
}
