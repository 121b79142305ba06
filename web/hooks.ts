/** State that pages share: loaded data, pages of a list, and the clock. */
import { useCallback, useEffect, useRef, useState } from 'preact/hooks'
import { type ApiError, get, queryOf } from './api.ts'

export interface Query<T> {
  data: T | undefined
  error: ApiError | undefined
  reload: () => void
}

/** Responses that a page shows until its own requests finish, such as after "back". */
const cache = new Map<string, unknown>()
const CACHE_MAX = 50

export function clearCache(): void {
  cache.clear()
}

function remember(path: string, data: unknown): void {
  cache.delete(path)
  cache.set(path, data)
  if (cache.size > CACHE_MAX) cache.delete(cache.keys().next().value as string)
}

/**
 * Loads a path, and again whenever it changes or after `refreshMs` while the page is visible.
 * @param path null: nothing is loaded
 */
export function useQuery<T>(path: string | null, refreshMs?: number): Query<T> {
  const [state, setState] = useState<{ path: string | null; data?: T; error?: ApiError }>({ path: null })
  const [round, setRound] = useState(0)
  useEffect(() => {
    if (path === null) return
    const abort = new AbortController()
    get<T>(path, abort.signal).then(
      (data) => {
        remember(path, data)
        setState({ path, data })
      },
      (error: ApiError) => {
        if (!abort.signal.aborted)
          setState((before) => ({ ...(before.path === path ? before : {}), path, error }))
      },
    )
    return () => abort.abort()
  }, [path, round])
  const reload = useCallback(() => setRound((count) => count + 1), [])
  useInterval(refreshMs === undefined || path === null ? null : refreshMs, reload)
  const isOwn = state.path === path
  const data = isOwn && state.data !== undefined ? state.data : (cache.get(path ?? '') as T | undefined)
  return { data, error: isOwn ? state.error : undefined, reload }
}

export interface List<Item> {
  items: Item[]
  error: ApiError | undefined
  isLoading: boolean
  hasMore: boolean
  more: () => void
  reload: () => void
}

interface ListState<Item> {
  items: Item[]
  next: unknown
  error?: ApiError
  isLoading: boolean
}

/**
 * Loads a list page by page.
 * @param path with the filter
 * @param name of the items in a response
 * @param cursorName of the parameter for the end of the page before
 */
export function useList<Item>(path: string, name: string, cursorName = 'after'): List<Item> {
  const [state, setState] = useState<ListState<Item>>({ items: [], next: null, isLoading: true })
  const [round, setRound] = useState(0)
  const abort = useRef<AbortController>(new AbortController())
  const read = (before: Item[], cursor: unknown, shown = before) => {
    abort.current.abort()
    abort.current = new AbortController()
    const { signal } = abort.current
    setState({ items: shown, next: cursor, isLoading: true })
    const further = cursor === null ? '' : queryOf({ [cursorName]: cursor as string })
    const url = path + (path.includes('?') ? further.replace('?', '&') : further)
    get<Record<string, unknown>>(url, signal).then(
      ({ [name]: items, next = null, nextCursor = next }) => {
        if (signal.aborted) return
        setState({ items: [...before, ...(items as Item[])], next: nextCursor, isLoading: false })
      },
      (error: ApiError) => {
        if (!signal.aborted) setState({ items: shown, next: cursor, error, isLoading: false })
      },
    )
  }
  const loaded = useRef(path)
  useEffect(() => {
    // A reload shows the old items until the new ones arrive, so that a button near them keeps the focus.
    read([], null, loaded.current === path ? state.items : [])
    loaded.current = path
    return () => abort.current.abort()
  }, [path, round])
  return {
    items: state.items,
    error: state.error,
    isLoading: state.isLoading,
    hasMore: state.next !== null,
    more: () => read(state.items, state.next),
    reload: () => setRound((count) => count + 1),
  }
}

/** Loads further pages of a list as long as they are wanted. */
export function useFurtherPages({ hasMore, isLoading, error, more }: List<unknown>, isWanted = true): void {
  useEffect(() => {
    if (isWanted && hasMore && !isLoading && !error) more()
  }, [isWanted, hasMore, isLoading, error])
}

/** Calls periodically while the page is visible. @param intervalMs null to never call */
export function useInterval(intervalMs: number | null, work: () => void): void {
  const latest = useRef(work)
  latest.current = work
  useEffect(() => {
    if (intervalMs === null) return
    const timer = setInterval(() => {
      if (document.visibilityState === 'visible') latest.current()
    }, intervalMs)
    return () => clearInterval(timer)
  }, [intervalMs])
}

/** Returns the last value that did not change for `ms`. */
export function useSettled<T>(value: T, ms: number): T {
  const [settled, setSettled] = useState(value)
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), ms)
    return () => clearTimeout(timer)
  }, [value, ms])
  return settled
}

/** An action that a button starts, with its progress and result. */
export function useAction() {
  const [state, setState] = useState<{ isRunning: boolean; error?: ApiError }>({ isRunning: false })
  const run = (work: () => Promise<void>) => {
    setState({ isRunning: true })
    work().then(
      () => setState({ isRunning: false }),
      (error: ApiError) => setState({ isRunning: false, error }),
    )
  }
  return { isRunning: state.isRunning, error: state.error, run }
}
