/** Renders only the rows of a long table that are near the visible part of the page. */
import { useEffect, useRef, useState } from 'preact/hooks'

/** A table with fewer rows is rendered completely, so that the browser's search finds every row. */
const WINDOWED_ABOVE = 120
/** Rows above and below the visible part. */
const MARGIN_ROWS = 12
/** Used until the first row is measured. */
const ROW_HEIGHT_DEFAULT = 52

interface RowWindow {
  /** ref of the <tbody>, whose rows all have the same height */
  body: { current: HTMLTableSectionElement | null }
  first: number
  last: number
  /** height of the rows that are not rendered, in pixels */
  above: number
  below: number
}

export function useRowWindow(count: number): RowWindow {
  const body = useRef<HTMLTableSectionElement>(null)
  const [view, setView] = useState({ first: 0, last: WINDOWED_ABOVE, height: ROW_HEIGHT_DEFAULT })
  useEffect(() => {
    if (count <= WINDOWED_ABOVE) return
    let isPlanned = false
    const measure = () => {
      isPlanned = false
      const element = body.current
      if (element === null) return
      const row = element.querySelector<HTMLElement>('tr[aria-rowindex]')
      const height = row?.offsetHeight || ROW_HEIGHT_DEFAULT
      const hidden = Math.max(0, -element.getBoundingClientRect().top)
      const first = Math.max(0, Math.floor(hidden / height) - MARGIN_ROWS)
      const last = Math.min(count, Math.ceil((hidden + innerHeight) / height) + MARGIN_ROWS)
      setView((before) =>
        before.first === first && before.last === last && before.height === height
          ? before
          : { first, last, height },
      )
    }
    const plan = () => {
      if (isPlanned) return
      isPlanned = true
      requestAnimationFrame(measure)
    }
    measure()
    addEventListener('scroll', plan, { passive: true })
    addEventListener('resize', plan)
    return () => {
      removeEventListener('scroll', plan)
      removeEventListener('resize', plan)
    }
  }, [count])
  if (count <= WINDOWED_ABOVE) return { body, first: 0, last: count, above: 0, below: 0 }
  const last = Math.min(count, view.last)
  const first = Math.min(view.first, last)
  return { body, first, last, above: first * view.height, below: (count - last) * view.height }
}
