/** The table of every list. It scrolls sideways where the page is too narrow. */
import type { ComponentChildren } from 'preact'
import { useMemo, useState } from 'preact/hooks'
import { replaceQuery, usePlace } from '../router.tsx'
import { useLocalized } from '../texts.ts'
import { Icon } from './icons.tsx'

/** The label is null above the buttons of a row. The class is that of the header and the cells; the second one is of cells alone. */
export type Column<Row> = [
  label: ComponentChildren,
  cell: (row: Row) => ComponentChildren,
  name?: string | undefined,
  cellName?: string,
  sort?: Sort | undefined,
]

export interface Sort {
  direction: 'ascending' | 'descending' | 'none'
  onSort: () => void
}

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
            {columns.map(([label, , all, , sort], index) => (
              <th key={index} scope="col" class={all} aria-sort={sort?.direction}>
                {sort ? (
                  <button type="button" class="sort" onClick={sort.onSort}>
                    {label}
                    {sort.direction !== 'none' && (
                      <Icon name={sort.direction === 'descending' ? 'down' : 'up'} />
                    )}
                  </button>
                ) : (
                  (label ?? <span class="visually-hidden">{t.common.actions}</span>)
                )}
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

interface Order<C> {
  column: C
  isDescending: boolean
}

/**
 * Sorts rows by the column whose header was clicked last. Nulls are last in both directions.
 * @param values of the columns that sort
 * @param isInAddress keeps the order in the address, such as `?sort=followers` or `?sort=-followers` for the least first
 */
export function useSorted<Row, C extends string>(
  rows: Row[],
  values: Record<C, (row: Row) => number | string | null>,
  first: NoInfer<C>,
  isInAddress = false,
): { sorted: Row[]; sortOf: (column: C) => Sort } {
  const [own, setOwn] = useState<Order<C>>({ column: first, isDescending: true })
  const given = usePlace().query.get('sort') ?? ''
  const named = given.replace(/^-/, '')
  const { column, isDescending } =
    isInAddress && Object.hasOwn(values, named)
      ? { column: named as C, isDescending: !given.startsWith('-') }
      : own
  const sorted = useMemo(() => {
    const sortValue = values[column]
    return rows.toSorted((a, b) => {
      const [x, y] = [sortValue(a), sortValue(b)]
      if (x === null || y === null) return Number(x === null) - Number(y === null)
      const difference = typeof x === 'string' ? x.localeCompare(String(y)) : x - Number(y)
      return isDescending ? -difference : difference
    })
  }, [rows, column, isDescending])
  const sortOf = (clicked: C): Sort => {
    const isActive = column === clicked
    const next = { column: clicked, isDescending: isActive ? !isDescending : true }
    return {
      direction: !isActive ? 'none' : isDescending ? 'descending' : 'ascending',
      onSort: () =>
        isInAddress ? replaceQuery({ sort: `${next.isDescending ? '' : '-'}${clicked}` }) : setOwn(next),
    }
  }
  return { sorted, sortOf }
}
