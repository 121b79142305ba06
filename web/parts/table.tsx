/** The table of every list. It scrolls sideways where the page is too narrow. */
import type { ComponentChildren } from 'preact'
import { useLocalized } from '../texts.ts'

/** The label is null above the buttons of a row. The class is that of the header and the cells; the last one is of cells alone. */
export type Column<Row> = [
  label: string | null,
  cell: (row: Row) => ComponentChildren,
  name?: string | undefined,
  cellName?: string,
]

export function Table<Row>({
  columns,
  rows,
  keyOf = (row, index) => (row as { id?: string }).id ?? index,
  header = 0,
  headerClass = 'col-account',
  class: name,
}: {
  columns: Array<Column<Row>>
  rows: Row[]
  keyOf?: (row: Row, index: number) => string | number
  /** the column that names the row; null: none does */
  header?: number | null
  headerClass?: string
  class?: string
}) {
  const { t } = useLocalized()
  const cellOf = (row: Row, [, cell, all = '', own = '']: Column<Row>, index: number) =>
    index === header ? (
      <th key={index} scope="row" class={headerClass}>
        {cell(row)}
      </th>
    ) : (
      <td key={index} class={`${all} ${own}`.trim()}>
        {cell(row)}
      </td>
    )
  return (
    <div class="table-frame">
      <table class={name}>
        <thead>
          <tr>
            {columns.map(([label, , all], index) => (
              <th key={index} scope="col" class={all}>
                {label ?? <span class="visually-hidden">{t.common.actions}</span>}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row, at) => (
            <tr key={keyOf(row, at)}>{columns.map((column, index) => cellOf(row, column, index))}</tr>
          ))}
        </tbody>
      </table>
    </div>
  )
}
