/** The frame of every table of a list. It scrolls sideways where the page is too narrow. */
import type { ComponentChildren } from 'preact'

/** @param head the cells of the header row */
export function Table({
  head,
  class: name,
  children,
}: {
  head: ComponentChildren
  class?: string
  children: ComponentChildren
}) {
  return (
    <div class="table-frame">
      <table class={name}>
        <thead>
          <tr>{head}</tr>
        </thead>
        <tbody>{children}</tbody>
      </table>
    </div>
  )
}
