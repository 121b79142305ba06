/** The frame of every table. It scrolls sideways where the page is too narrow. */
import type { ComponentChildren } from 'preact'

export type Column = string | { label: string; class?: string; isHidden?: boolean }

export function Table({
  columns,
  class: name,
  children,
}: {
  columns: Column[]
  class?: string
  children: ComponentChildren
}) {
  return (
    <div class="table-frame">
      <table class={name}>
        <thead>
          <tr>{columns.map(header)}</tr>
        </thead>
        <tbody>{children}</tbody>
      </table>
    </div>
  )
}

function header(column: Column) {
  const { label, class: name, isHidden } = typeof column === 'string' ? { label: column } : column
  return (
    <th key={label} scope="col" class={name}>
      {isHidden ? <span class="visually-hidden">{label}</span> : label}
    </th>
  )
}
