/** What an address shows that leads to no page, or to one that the operator may not open. */
import type { Role } from '../../src/operator/actor.ts'
import { Page } from '../parts/page.tsx'
import { Empty } from '../parts/states.tsx'
import { Link } from '../router.tsx'
import { useOperator } from '../session.ts'
import { fill } from '../texts/languages.ts'
import { useLocalized } from '../texts.ts'

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
