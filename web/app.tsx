/** The frame around all pages: sign-in, navigation and languages. */
import { useEffect, useMemo, useState } from 'preact/hooks'
import { type ApiError, get, listenForSignOut, post } from './api.ts'
import { clearCache, useAction } from './hooks.ts'
import { AccountPage } from './pages/account.tsx'
import { AudiencePage } from './pages/audience.tsx'
import { ClientPage } from './pages/client.tsx'
import { ClientsPage } from './pages/clients.tsx'
import { EndpointPage } from './pages/endpoint.tsx'
import { EndpointsPage } from './pages/endpoints.tsx'
import { EventPage } from './pages/event.tsx'
import { EventsPage } from './pages/events.tsx'
import { FleetPage } from './pages/fleet.tsx'
import { LivePage } from './pages/live.tsx'
import { MemberPage } from './pages/member.tsx'
import { NotFoundPage } from './pages/not-found.tsx'
import { SearchPage } from './pages/search.tsx'
import { SignInPage } from './pages/sign-in.tsx'
import { Icon, type IconName, Mark } from './parts/icons.tsx'
import { SearchBox } from './parts/search-box.tsx'
import { Failure } from './parts/states.tsx'
import { Link, match, type Place, usePlace } from './router.tsx'
import { isSessionRemembered, rememberSession } from './session.ts'
import {
  initialLanguage,
  LANGUAGE_NAMES,
  type Language,
  LocalizedContext,
  localize,
  rememberLanguage,
  useLocalized,
} from './texts.ts'

type Session = 'unknown' | 'open' | 'none' | 'ended'

export function App() {
  const [language, setLanguage] = useState<Language>(initialLanguage)
  const localized = useMemo(() => localize(language), [language])
  const [session, setSession] = useState<Session>(isSessionRemembered() ? 'open' : 'unknown')
  const [error, setError] = useState<ApiError>()
  useEffect(() => {
    document.documentElement.lang = language
    rememberLanguage(language)
  }, [language])
  useEffect(() => {
    // A page sends several requests, and each of them is refused after the session has ended.
    listenForSignOut(() => {
      rememberSession(null)
      clearCache()
      setSession((before) => (before === 'open' ? 'ended' : before))
    })
    if (session !== 'open') findSession()
  }, [])
  const findSession = () => {
    setError(undefined)
    get<{ endsAt: string | null }>('/api/session').then(({ endsAt }) => {
      rememberSession(endsAt)
      setSession(endsAt === null ? 'none' : 'open')
    }, setError)
  }
  const signOut = async () => {
    await post('/sign-out')
    clearCache()
    rememberSession(null)
    setSession('none')
  }
  const languages = <Languages language={language} onChoose={setLanguage} />
  return (
    <LocalizedContext.Provider value={localized}>
      {session === 'open' && <Frame languages={languages} onSignOut={signOut} />}
      {session === 'unknown' && error && (
        <main class="sign-in">
          <Failure error={error} retry={findSession} />
        </main>
      )}
      {(session === 'none' || session === 'ended') && (
        <SignInPage
          hasEnded={session === 'ended'}
          onSignIn={() => setSession('open')}
          languages={languages}
        />
      )}
    </LocalizedContext.Provider>
  )
}

const NAVIGATION: Array<{
  page: IconName & keyof ReturnType<typeof useLocalized>['t']['nav']
  href: string
}> = [
  { page: 'fleet', href: '/' },
  { page: 'audience', href: '/audience' },
  { page: 'events', href: '/events' },
  { page: 'endpoints', href: '/endpoints' },
  { page: 'clients', href: '/clients' },
  { page: 'live', href: '/live' },
]

function Frame({ languages, onSignOut }: { languages: preact.JSX.Element; onSignOut: () => Promise<void> }) {
  const { t } = useLocalized()
  const { isRunning, error, run } = useAction()
  const place = usePlace()
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
          {NAVIGATION.map(({ page, href }) => (
            <Link key={page} href={href} aria-current={isCurrent(href) ? 'page' : undefined}>
              <Icon name={page} />
              <span>{t.nav[page]}</span>
            </Link>
          ))}
        </nav>
        <div class="side-end">
          {languages}
          <button type="button" class="plain" disabled={isRunning} onClick={() => run(onSignOut)}>
            <Icon name="out" />
            <span>{t.signOut}</span>
          </button>
        </div>
      </header>
      <main id="content" tabIndex={-1}>
        {error && <Failure error={error} title={t.signOutFailed} />}
        <CurrentPage place={place} />
      </main>
    </div>
  )
}

function Languages({ language, onChoose }: { language: Language; onChoose: (language: Language) => void }) {
  const { t } = localize(language)
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

const PAGES: Array<[pattern: string, page: (parameters: Parameters, place: Place) => preact.JSX.Element]> = [
  ['/', () => <FleetPage />],
  ['/accounts/:id', ({ id = '' }) => <AccountPage key={id} id={id} />],
  ['/audience', () => <AudiencePage account={null} />],
  ['/audience/:account', ({ account = '' }) => <AudiencePage key={account} account={account} />],
  [
    '/audience/:account/:user',
    ({ account = '', user = '' }) => <MemberPage key={user} account={account} user={user} />,
  ],
  ['/events', () => <EventsPage />],
  ['/events/:id', ({ id = '' }) => <EventPage key={id} id={id} />],
  ['/endpoints', () => <EndpointsPage />],
  ['/endpoints/:id', ({ id = '' }) => <EndpointPage key={id} id={id} />],
  ['/clients', () => <ClientsPage />],
  ['/clients/:id', ({ id = '' }) => <ClientPage key={id} id={id} />],
  ['/live', () => <LivePage />],
  ['/search', (_, { query }) => <SearchPage key={query.get('q')} text={query.get('q')?.trim() ?? ''} />],
]

function CurrentPage({ place }: { place: Place }) {
  for (const [pattern, page] of PAGES) {
    const parameters = match(pattern, place.path)
    if (parameters !== null) return page(parameters, place)
  }
  return <NotFoundPage />
}
