/** States of a page: loading, failed and empty. Each text says what to do next. */
import type { ComponentChildren } from 'preact'
import type { ApiError } from '../api.ts'
import type { List, Query } from '../hooks.ts'
import { describeMessage } from '../texts/service.ts'
import { fill, type Texts, useLocalized } from '../texts.ts'
import { Icon } from './icons.tsx'

const SKELETON_ROWS = 6

export function Loading() {
  const { t } = useLocalized()
  return (
    <div class="loading" role="status">
      <span class="visually-hidden">{t.common.loading}</span>
      {Array.from({ length: SKELETON_ROWS }, (_, row) => (
        <div key={row} class="skeleton" aria-hidden="true" />
      ))}
    </div>
  )
}

export function Failure({
  error,
  title,
  retry,
}: {
  error: ApiError
  /** default: the page could not be loaded */
  title?: string
  retry?: () => void
}) {
  const { t } = useLocalized()
  return (
    <div class="notice bad" role="alert">
      <strong>{title ?? t.failure.title}</strong>
      <p>{explain(error, t)}</p>
      {error.requestId && <p class="muted">{fill(t.failure.requestId, { id: error.requestId })}</p>}
      {retry && (
        <button type="button" onClick={retry}>
          {t.common.retry}
        </button>
      )}
    </div>
  )
}

export function ActionFailure({ error }: { error: ApiError | undefined }) {
  const { t } = useLocalized()
  return error === undefined ? null : (
    <p class="problem" role="alert">
      {explain(error, t)}
    </p>
  )
}

function explain({ status, message }: ApiError, t: Texts): string {
  if (status === 0) return t.failure.offline
  if (status === 404) return t.failure.gone
  const text = describeMessage(t, message)
  return text || (status === 503 || status === 429 ? t.failure.busy : t.failure.offline)
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <Icon name="empty" />
      <strong>{title}</strong>
      <div class="muted">{children}</div>
    </div>
  )
}

/** Data that is loaded as a whole, or the state of the request. */
export function Loaded<T>({
  query: { data, error, reload },
  title,
  children,
}: {
  query: Query<T>
  title?: string
  children?: (data: T) => ComponentChildren
}) {
  return (
    <>
      {error && <Failure error={error} retry={reload} {...(title && { title })} />}
      {data === undefined ? !error && <Loading /> : children?.(data)}
    </>
  )
}

/**
 * The loaded pages of a list, a hint that it is empty, or the error.
 * @param isQuiet shows nothing while the first page loads
 */
export function ListView<Item>({
  list,
  empty,
  isQuiet = false,
  children,
}: {
  list: List<Item>
  empty: ComponentChildren
  isQuiet?: boolean
  children: (items: Item[]) => ComponentChildren
}) {
  const { items, error, isLoading, reload } = list
  const isEmpty = items.length === 0
  return (
    <>
      {error && <Failure error={error} retry={reload} />}
      {isEmpty && isLoading && !isQuiet && <Loading />}
      {isEmpty && !isLoading && !error && empty}
      {!isEmpty && children(items)}
      <More list={list} />
    </>
  )
}

export function More({ list }: { list: Pick<List<unknown>, 'hasMore' | 'isLoading' | 'more'> }) {
  const { t } = useLocalized()
  if (!list.hasMore) return null
  return (
    <div class="more">
      <button type="button" onClick={list.more} disabled={list.isLoading}>
        {list.isLoading ? t.common.loading : t.common.more}
      </button>
    </div>
  )
}
