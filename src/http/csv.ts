/** Texts that separate their items by commas: lists, and CSV files (RFC 4180). */

/** Items without spaces around them, and without empty ones. */
export const itemsOf = (text: string): string[] =>
  text
    .split(',')
    .map((item) => item.trim())
    .filter((item) => item !== '')

/** Characters with which a spreadsheet begins a formula, their full-width forms, and the apostrophe that protects from it. */
export const FORMULA_STARTS = "'=+-@＝＋－＠\t\r\n"

type Cell = string | number | bigint | null | undefined

/** By this mark, spreadsheets recognize UTF-8. */
export const BYTE_ORDER_MARK = '\uFEFF'

export const csvFile = (header: string[], rows: Cell[][]): string =>
  BYTE_ORDER_MARK + [header, ...rows].map(csvLine).join('')

/** A line with its end. Null is empty, and text that a spreadsheet would evaluate gets an apostrophe. */
const csvLine = (cells: Cell[]): string =>
  `${cells.map((cell) => (typeof cell === 'string' ? quoted(cell) : (cell ?? ''))).join(',')}\r\n`

const quoted = (text: string) =>
  `"${FORMULA_STARTS.includes(text.charAt(0)) && text !== '' ? "'" : ''}${text.replaceAll('"', '""')}"`
