/** The frame of a page: its title, which is also the title of the browser's tab, and the focus after a navigation. */
import type { ComponentChildren } from 'preact'
import { useEffect, useRef } from 'preact/hooks'
import type { Role } from '../../src/operators/actor.ts'
import { Link, usePlace } from '../router.tsx'
import { useOperator } from '../session.ts'
import { fill, useLocalized } from '../texts.ts'
import { Empty } from './states.tsx'

export interface PageProps {
  title: string
  lead?: ComponentChildren
  /** above the title: the pages that this one belongs to */
  trail?: ComponentChildren
  actions?: ComponentChildren
  children: ComponentChildren
}

/** The first page leaves the focus where the browser puts it. */
let isFirstPage = true

export function Page({ title, lead, trail, actions, children }: PageProps) {
  const { t } = useLocalized()
  const heading = useRef<HTMLHeadingElement>(null)
  useEffect(() => {
    document.title = `${title} · ${t.product}`
  }, [title, t])
  useEffect(() => {
    if (!isFirstPage) heading.current?.focus({ preventScroll: true })
    isFirstPage = false
  }, [])
  return (
    <>
      <header class="page-header">
        <div>
          {trail && <div class="trail">{trail}</div>}
          <h1 ref={heading} tabIndex={-1}>
            {title}
          </h1>
          {lead && <p class="lead">{lead}</p>}
        </div>
        {actions && <div class="actions">{actions}</div>}
      </header>
      {children}
    </>
  )
}

/** Links to the parts of a page. */
export function Tabs({ label, items }: { label: string; items: Array<[href: string, text: string]> }) {
  const { path } = usePlace()
  return (
    <nav class="chips" aria-label={label}>
      {items.map(([href, text]) => (
        <Link key={href} class="button" href={href} aria-current={path === href ? 'page' : undefined}>
          {text}
        </Link>
      ))}
    </nav>
  )
}

export function Panel({
  title,
  actions,
  children,
  class: name = '',
}: {
  title: string
  actions?: ComponentChildren
  children: ComponentChildren
  class?: string
}) {
  return (
    <section class={`panel ${name}`} aria-label={title}>
      <header>
        <h2>{title}</h2>
        {actions && <div class="actions">{actions}</div>}
      </header>
      {children}
    </section>
  )
}

export type Fact = [name: string, value: ComponentChildren] | false

/** @param items false: nothing is shown */
export function Facts({ items }: { items: Fact[] }) {
  return (
    <dl class="facts">
      {items.map(
        (item) =>
          item && (
            <div key={item[0]}>
              <dt>{item[0]}</dt>
              <dd>{item[1] ?? '–'}</dd>
            </div>
          ),
      )}
    </dl>
  )
}

export function NotFoundPage() {
  const { t } = useLocalized()
  return <NoPage title={t.notFound.title} text={t.notFound.text} />
}

/** @param role the least one that may open the page */
export function NotAllowedPage({ role }: { role: Role }) {
  const { t } = useLocalized()
  const { roles } = t.operators
  return (
    <NoPage
      title={t.notAllowed.title}
      text={fill(t.notAllowed.text, { own: roles[useOperator().role], needed: roles[role] })}
    />
  )
}

function NoPage({ title, text }: { title: string; text: string }) {
  const { t } = useLocalized()
  return (
    <Page title={title}>
      <Empty title={text}>
        <Link href="/">{t.notFound.back}</Link>
      </Empty>
    </Page>
  )
}
