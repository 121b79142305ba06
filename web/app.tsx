/** The frame around all pages: sign-in, navigation and languages. */
import { useEffect, useState } from 'preact/hooks'
import type { Role } from '../src/operators/actor.ts'
import { type ApiError, get, listenForSignOut, post } from './api.ts'
import { clearCache, useAction } from './hooks.ts'
import { AccountPage } from './pages/account.tsx'
import { ActivityPage, ObjectActivityPage } from './pages/activity.tsx'
import { ClientPage } from './pages/client.tsx'
import { ClientsPage } from './pages/clients.tsx'
import { EditAccountPage } from './pages/edit-account.tsx'
import { EndpointPage } from './pages/endpoint.tsx'
import { EndpointsPage } from './pages/endpoints.tsx'
import { EventPage } from './pages/event.tsx'
import { EventsPage } from './pages/events.tsx'
import { FleetPage } from './pages/fleet.tsx'
import { InvitationPage } from './pages/invitation.tsx'
import { JobPage, JobsPage } from './pages/jobs.tsx'
import { MemberPage } from './pages/member.tsx'
import { NewAccountPage } from './pages/new-account.tsx'
import { NotificationPage } from './pages/notification.tsx'
import { NotificationsPage } from './pages/notifications.tsx'
import { OrganizationsPage } from './pages/organizations.tsx'
import { SearchPage } from './pages/search.tsx'
import { OwnPage, SystemPage } from './pages/settings.tsx'
import { SignInPage } from './pages/sign-in.tsx'
import { Icon, Mark } from './parts/icons.tsx'
import { RunningJobs } from './parts/job.tsx'
import { later } from './parts/later.tsx'
import { NotAllowedPage, NotFoundPage } from './parts/page.tsx'
import { SearchBox } from './parts/search-box.tsx'
import { Failure } from './parts/states.tsx'
import { Link, match, type Place, usePlace } from './router.tsx'
import { OperatorContext, type Session, useOperator, useRole } from './session.ts'
import { LANGUAGE_NAMES, type Language, type Localized, loadLanguage } from './texts/languages.ts'
import { LocalizedContext, rememberLanguage, useLocalized } from './texts.ts'

const FleetFilePage = later(() => import('./pages/fleet-file.tsx').then(({ FleetFilePage }) => FleetFilePage))
const ImportPage = later(() => import('./pages/import.tsx').then(({ ImportPage }) => ImportPage))
const ReportPage = later(() => import('./pages/report.tsx').then(({ ReportPage }) => ReportPage))
const OperatorsPage = later(() => import('./parts/operators.tsx').then(({ OperatorsPage }) => OperatorsPage))

/** `ended`: a request was refused, because the session has ended. */
type State = { session: Session } | 'unknown' | 'none' | 'ended'

export function App({ initial }: { initial: Localized }) {
  const [localized, setLocalized] = useState(initial)
  const { language } = localized
  const [state, setState] = useState<State>('unknown')
  const [accepts, setAccepts] = useState({ token: false, password: true })
  const [error, setError] = useState<ApiError>()
  const place = usePlace()
  useEffect(() => {
    document.documentElement.lang = language
  }, [language])
  useEffect(() => {
    // A page sends several requests, and each of them is refused after the session has ended.
    listenForSignOut(() => {
      clearCache()
      setState((before) => (typeof before === 'object' ? 'ended' : before))
      // An operator may have chosen the first password since, so the sign-in page may ask for another secret.
      findSession()
    })
    findSession()
  }, [])
  const findSession = () => {
    setError(undefined)
    get<{ session: Session | null; acceptsToken: boolean; acceptsPassword: boolean }>('/api/session').then(
      (found) => {
        setAccepts({ token: found.acceptsToken, password: found.acceptsPassword })
        setState((before) => {
          if (found.session !== null) return { session: found.session }
          return before === 'ended' ? 'ended' : 'none'
        })
      },
      setError,
    )
  }
  const signOut = async () => {
    await post('/sign-out')
    clearCache()
    setState('none')
    findSession()
  }
  const chooseLanguage = async (chosen: Language) => {
    rememberLanguage(chosen)
    // If the table cannot be loaded, the page keeps its language, and the list shows it again.
    await loadLanguage(chosen).then(setLocalized, () => setLocalized((before) => ({ ...before })))
  }
  const languages = <Languages onChoose={chooseLanguage} />
  const shown = () => {
    if (place.path === '/invitation') return <InvitationPage onSignIn={findSession} languages={languages} />
    if (typeof state === 'object')
      return (
        <OperatorContext.Provider value={state.session.operator}>
          <Frame
            languages={languages}
            // A proxy would sign the operator in again.
            onSignOut={state.session.endsAt === null ? null : signOut}
          />
        </OperatorContext.Provider>
      )
    if (state === 'unknown')
      return (
        error && (
          <main class="sign-in">
            <Failure error={error} retry={findSession} />
          </main>
        )
      )
    return (
      <SignInPage
        key={String(accepts.password)}
        hasEnded={state === 'ended'}
        accepts={accepts}
        onSignIn={findSession}
        languages={languages}
      />
    )
  }
  return <LocalizedContext.Provider value={localized}>{shown()}</LocalizedContext.Provider>
}

const NAVIGATION = [
  ['fleet', '/'],
  ['report', '/report'],
  ['events', '/events'],
  ['endpoints', '/endpoints'],
  ['clients', '/clients'],
  ['activity', '/activity'],
  ['settings', '/settings'],
] as const

function Frame({
  languages,
  onSignOut,
}: {
  languages: preact.JSX.Element
  /** null: a proxy signs the operator in */
  onSignOut: (() => Promise<void>) | null
}) {
  const { t } = useLocalized()
  const { isRunning, error, run } = useAction()
  const place = usePlace()
  const operator = useOperator()
  const isOwner = useRole('owner')
  const isCurrent = (href: string) =>
    href === '/' ? place.path === '/' || place.path.startsWith('/accounts') : place.path.startsWith(href)
  return (
    <div class="frame">
      <a class="skip" href="#content">
        {t.skip}
      </a>
      <header class="side">
        <div class="brand">
          <Mark />
          <span>oa-audience</span>
        </div>
        <SearchBox place={place} />
        <nav aria-label={t.navigation}>
          {NAVIGATION.filter(([page]) => isOwner || page !== 'activity').map(([page, href]) => (
            <Link key={page} href={href} aria-current={isCurrent(href) ? 'page' : undefined}>
              <Icon name={page} />
              <span>{t.nav[page]}</span>
            </Link>
          ))}
        </nav>
        <div class="side-end">
          <RunningJobs />
          {languages}
          <Link href="/settings" class="signed-in" title={operator.name}>
            <span>{operator.kind === 'token' ? t.operators.tokenHolder : operator.name}</span>
            <span class="muted">{t.operators.roles[operator.role]}</span>
          </Link>
          {onSignOut && (
            <button type="button" class="plain" disabled={isRunning} onClick={() => run(onSignOut)}>
              <Icon name="out" />
              <span>{t.signOut}</span>
            </button>
          )}
        </div>
      </header>
      <main id="content" tabIndex={-1}>
        {error && <Failure error={error} title={t.signOutFailed} />}
        <CurrentPage place={place} />
      </main>
    </div>
  )
}

function Languages({ onChoose }: { onChoose: (language: Language) => void }) {
  const { t, language } = useLocalized()
  return (
    <select
      class="languages"
      aria-label={t.language}
      value={language}
      onChange={(event) => onChoose(event.currentTarget.value as Language)}
    >
      {Object.entries(LANGUAGE_NAMES).map(([tag, name]) => (
        <option key={tag} value={tag} lang={tag}>
          {name}
        </option>
      ))}
    </select>
  )
}

type Parameters = Record<string, string>

type ShowPage = (parameters: Parameters, place: Place) => preact.JSX.Element

/** With the role that an operator needs, by default viewer. */
const PAGES: Array<[pattern: string, page: ShowPage, role?: Role]> = [
  ['/', () => <FleetPage />],
  ['/accounts/new', () => <NewAccountPage />, 'manager'],
  ['/accounts/file', () => <FleetFilePage />, 'manager'],
  [
    '/accounts/:id/edit',
    ({ id = '' }, { query }) => <EditAccountPage key={id} id={id} field={query.get('field')} />,
    'manager',
  ],
  ['/accounts/:id', ({ id = '' }) => <AccountPage key={id} id={id} />],
  ['/accounts/:id/audience', ({ id = '' }) => <AccountPage key={id} id={id} isAudience />],
  [
    '/accounts/:account/audience/:user',
    ({ account = '', user = '' }) => <MemberPage key={user} account={account} user={user} />,
  ],
  ['/report', (_, { query }) => <ReportPage query={query} />],
  ['/events', () => <EventsPage />],
  ['/events/:id', ({ id = '' }) => <EventPage key={id} id={id} />],
  ['/endpoints', () => <EndpointsPage />],
  ['/endpoints/:id', ({ id = '' }) => <EndpointPage key={id} id={id} />],
  ['/clients', () => <ClientsPage />],
  ['/clients/:id', ({ id = '' }) => <ClientPage key={id} id={id} />],
  [
    '/accounts/:account/import',
    ({ account = '' }) => <ImportPage key={account} account={account} />,
    'manager',
  ],
  ['/activity', () => <ActivityPage />, 'owner'],
  ['/activity/of', () => <ObjectActivityPage />],
  ['/settings', () => <OwnPage />],
  ['/settings/operators', () => <OperatorsPage />, 'owner'],
  ['/settings/notifications', () => <NotificationsPage />],
  ['/settings/notifications/:id', ({ id = '' }) => <NotificationPage key={id} id={id} />],
  ['/settings/organizations', () => <OrganizationsPage />],
  ['/settings/jobs', () => <JobsPage />],
  ['/settings/jobs/:id', ({ id = '' }) => <JobPage key={id} id={id} />],
  ['/settings/system', () => <SystemPage />],
  ['/search', (_, { query }) => <SearchPage key={query.get('q')} text={query.get('q')?.trim() ?? ''} />],
]

function CurrentPage({ place }: { place: Place }) {
  const has = { viewer: true, manager: useRole('manager'), owner: useRole('owner') }
  for (const [pattern, page, role = 'viewer'] of PAGES) {
    const parameters = match(pattern, place.path)
    if (parameters !== null) return has[role] ? page(parameters, place) : <NotAllowedPage role={role} />
  }
  return <NotFoundPage />
}
