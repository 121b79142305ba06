/** URLs of pages. Links are ordinary links, so they can be opened in a new tab and copied. */
import type { AnchorHTMLAttributes, TargetedMouseEvent } from 'preact'
import { useEffect, useState } from 'preact/hooks'

export interface Place {
  path: string
  query: URLSearchParams
}

const place = (): Place => ({ path: location.pathname, query: new URLSearchParams(location.search) })

export function usePlace(): Place {
  const [current, setCurrent] = useState(place)
  useEffect(() => {
    const update = () => setCurrent(place())
    addEventListener('navigated', update)
    return () => removeEventListener('navigated', update)
  }, [])
  return current
}

/** Forms that were typed in and not sent yet, with what the operator is asked before they are lost. */
export const unsent = new Map<Element, string>()

/** Asks before what was typed is lost. @param place a part of the page that closes; by default, all of it */
export function mayLeave(place: Element = document.body): boolean {
  const left = [...unsent].filter(([form]) => place.contains(form))
  const [, question] = left[0] ?? []
  if (question !== undefined && !confirm(question)) return false
  for (const [form] of left) unsent.delete(form)
  return true
}

/** Asks also before the browser goes back, closes the page or loads it again. Called once. */
export function guardUnsent(): void {
  let shown = location.href
  addEventListener('navigated', () => {
    shown = location.href
  })
  addEventListener('popstate', () => {
    if (mayLeave()) dispatchEvent(new Event('navigated'))
    else history.pushState(null, '', shown)
  })
  addEventListener('beforeunload', (event) => {
    if ([...unsent.keys()].some((form) => form.isConnected)) event.preventDefault()
  })
}

export function navigate(href: string): void {
  if (!mayLeave()) return
  history.pushState(null, '', href)
  dispatchEvent(new Event('navigated'))
  scrollTo(0, 0)
}

/** Changes the query of the current page, such as a filter, without a history entry. */
export function replaceQuery(values: Record<string, string | null>): void {
  const { path, query } = place()
  for (const [name, value] of Object.entries(values)) {
    if (value === null || value === '') query.delete(name)
    else query.set(name, value)
  }
  const text = query.toString()
  history.replaceState(null, '', text === '' ? path : `${path}?${text}`)
  dispatchEvent(new Event('navigated'))
}

export function Link({ href, ...rest }: AnchorHTMLAttributes<HTMLAnchorElement> & { href: string }) {
  const follow = (event: TargetedMouseEvent<HTMLAnchorElement>) => {
    if (event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return
    event.preventDefault()
    navigate(href)
  }
  return <a {...rest} href={href} onClick={follow} />
}

/** Valid parts other than user ids. Parts of a path become parts of requests, so a link must not be able to redirect a request. */
const ID = /^\d{1,19}$/

/** The account of the filter, or null. */
export function accountOf(query: URLSearchParams): string | null {
  const id = query.get('account')
  return id !== null && ID.test(id) ? id : null
}

/** Returns the parameters of a path for a pattern such as `/accounts/:id`, or null. All but `:user` are ids. */
export function match(pattern: string, path: string): Record<string, string> | null {
  const names = pattern.split('/')
  const parts = path.split('/')
  if (names.length !== parts.length) return null
  const found: Record<string, string> = {}
  for (const [index, name] of names.entries()) {
    const part = parts[index] ?? ''
    if (!name.startsWith(':')) {
      if (name !== part) return null
    } else if (name === ':user' ? part === '' : !ID.test(part)) return null
    else found[name.slice(1)] = decode(part)
  }
  return found
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part)
  } catch {
    return part
  }
}
