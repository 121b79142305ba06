/** Reads further pages while those of a search are empty. */
import { useEffect, useState } from 'preact/hooks'
import type { List } from '../hooks.ts'

/** A page of the service examines 2,000 members and may be empty. After this many empty pages, the operator decides. */
const EMPTY_PAGES_MAX = 25

export function useFurtherPages<Item>({ items, isLoading, hasMore, error, more }: List<Item>) {
  const [pages, setPages] = useState({ read: 0, max: EMPTY_PAGES_MAX })
  const isWanted = items.length === 0 && hasMore && !isLoading && !error
  useEffect(() => {
    if (!hasMore && !isLoading) setPages({ read: 0, max: EMPTY_PAGES_MAX })
    if (!isWanted || pages.read >= pages.max) return
    setPages(({ read, max }) => ({ read: read + 1, max }))
    more()
  }, [isWanted, pages.max])
  return {
    pages: pages.read,
    isGoingOn: isWanted && pages.read < pages.max,
    goOn: () => setPages(({ read }) => ({ read, max: read + EMPTY_PAGES_MAX })),
  }
}
