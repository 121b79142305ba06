/** The first rows of a member file, for a look before the import. The service parses the file again, and completely. */
import { type ColumnFault, findColumnFault } from '../../src/audience/import/member-columns.ts'

/** Bytes that are read. */
export const PREVIEW_BYTES = 64 * 1024
const ROWS_MAX = 5

export interface Preview {
  columns: string[]
  /** of the first line of a CSV file; null: it can be imported */
  fault: ColumnFault | null
  rows: string[][]
}

/** @param isCut the text is only the beginning of the file, so its last row may be incomplete */
export function previewOf(text: string, format: 'csv' | 'ndjson', isCut: boolean): Preview {
  return format === 'csv' ? previewCsv(text, isCut) : previewNdjson(text, isCut)
}

function previewCsv(text: string, isCut: boolean): Preview {
  const rows: string[][] = []
  let row: string[] = []
  let start = text.startsWith('\uFEFF') ? 1 : 0
  for (let at = start; at <= text.length && rows.length <= ROWS_MAX; at += 1) {
    if (text[at] === '"') {
      at = text.indexOf('"', at + 1)
      if (at === -1) break
      continue
    }
    const isEnd = at === text.length
    if (!isEnd && text[at] !== ',' && text[at] !== '\n') continue
    row.push(cellOf(text.slice(start, at)))
    start = at + 1
    if (text[at] === ',' || (isEnd && isCut)) continue
    if (row.some((cell) => cell !== '')) rows.push(row)
    row = []
  }
  const [columns = [], ...others] = rows
  const fault = findColumnFault(columns.map((name) => name.trim()))
  return { columns, fault, rows: others.slice(0, ROWS_MAX) }
}

function cellOf(text: string): string {
  const trimmed = text.replace(/\r$/, '')
  return trimmed.startsWith('"') ? trimmed.slice(1, -1).replaceAll('""', '"') : trimmed
}

function previewNdjson(text: string, isCut: boolean): Preview {
  const lines = text.split('\n')
  const whole = isCut ? lines.slice(0, -1) : lines
  const entries = whole.filter((line) => line.trim() !== '').slice(0, ROWS_MAX)
  const objects = entries.map(parseObject)
  const columns = [...new Set(objects.flatMap((object) => Object.keys(object)))]
  const cell = (value: unknown) =>
    value === undefined ? '' : typeof value === 'string' ? value : JSON.stringify(value)
  return { columns, fault: null, rows: objects.map((object) => columns.map((name) => cell(object[name]))) }
}

function parseObject(line: string): Record<string, unknown> {
  try {
    const value = JSON.parse(line.trim()) as unknown
    return typeof value === 'object' && value !== null && !Array.isArray(value) ? { ...value } : {}
  } catch {
    return {}
  }
}
