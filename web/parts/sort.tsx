import type { ComponentChildren } from 'preact'
import { Icon } from './icons.tsx'

export interface Order<Column extends string> {
  column: Column
  isDescending: boolean
}

export function SortHeader<Column extends string>({
  column,
  order,
  onSort,
  children,
  class: name = '',
}: {
  column: Column
  order: Order<Column>
  onSort: (order: Order<Column>) => void
  children: ComponentChildren
  class?: string
}) {
  const isActive = order.column === column
  const direction = order.isDescending ? 'descending' : 'ascending'
  return (
    <th scope="col" class={name} aria-sort={isActive ? direction : 'none'}>
      <button
        type="button"
        class="sort"
        onClick={() => onSort({ column, isDescending: isActive ? !order.isDescending : true })}
      >
        {children}
        {isActive && <Icon name={order.isDescending ? 'down' : 'up'} />}
      </button>
    </th>
  )
}

/** Nulls sort last in both directions. */
export function compareBy<Item>(
  value: (item: Item) => number | string | null,
  isDescending: boolean,
): (a: Item, b: Item) => number {
  return (a, b) => {
    const [x, y] = [value(a), value(b)]
    if (x === null || y === null) return Number(x === null) - Number(y === null)
    const difference = typeof x === 'string' ? x.localeCompare(String(y)) : x - Number(y)
    return isDescending ? -difference : difference
  }
}
