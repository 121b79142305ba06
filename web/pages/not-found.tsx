import { Page } from '../parts/page.tsx'
import { Empty } from '../parts/states.tsx'
import { Link } from '../router.tsx'
import { useLocalized } from '../texts.ts'

export function NotFoundPage() {
  const { t } = useLocalized()
  return (
    <Page title={t.notFound.title}>
      <Empty title={t.notFound.text}>
        <Link href="/">{t.notFound.back}</Link>
      </Empty>
    </Page>
  )
}
