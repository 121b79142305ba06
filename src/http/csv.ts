/** Cells of CSV files (RFC 4180). */

/** Characters with which a spreadsheet begins a formula, their full-width forms, and the apostrophe that protects from it. */
export const FORMULA_STARTS = "'=+-@＝＋－＠\t\r\n"

/** A line with its end. Null is empty, and text that a spreadsheet would evaluate gets an apostrophe. */
export const csvLine = (cells: Array<string | number | bigint | null | undefined>): string =>
  `${cells.map((cell) => (typeof cell === 'string' ? quoted(cell) : (cell ?? ''))).join(',')}\r\n`

const quoted = (text: string) =>
  `"${FORMULA_STARTS.includes(text.charAt(0)) && text !== '' ? "'" : ''}${text.replaceAll('"', '""')}"`
