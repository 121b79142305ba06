/** A page of the settings, with links to the others. */
import { Link } from '../router.tsx'
import { useRole } from '../session.ts'
import { useLocalized } from '../texts.ts'
import { Page, type PageProps, Tabs } from './page.tsx'

type Section = 'own' | 'operators' | 'organizations' | 'notifications' | 'jobs' | 'system'

export function SettingsPage({
  section,
  children,
  ...page
}: Omit<PageProps, 'title' | 'trail'> & { section: Section }) {
  const { t } = useLocalized()
  const isOwner = useRole('owner')
  const titles: Record<Section, string> = {
    own: t.settings.you,
    operators: t.operators.title,
    organizations: t.organizations.title,
    notifications: t.notifications.title,
    jobs: t.jobs.title,
    system: t.settings.system,
  }
  const { own, operators, ...others } = titles
  return (
    <Page title={titles[section]} trail={<Link href="/settings">{t.nav.settings}</Link>} {...page}>
      <Tabs
        label={t.nav.settings}
        items={[
          ['/settings', own],
          ...(isOwner ? [['/settings/operators', operators] as [string, string]] : []),
          ...Object.entries(others).map(([name, title]): [string, string] => [`/settings/${name}`, title]),
        ]}
      />
      {children}
    </Page>
  )
}
