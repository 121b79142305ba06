/** Events as they are committed. */
import { useRef, useState } from 'preact/hooks'
import type { TailEvent } from '../../src/audience/events.ts'
import { type Json, queryOf } from '../api.ts'
import { useQuery } from '../hooks.ts'
import { AccountFilter, ChoiceFilter } from '../parts/filters.tsx'
import { Page } from '../parts/page.tsx'
import { PersonLink } from '../parts/person.tsx'
import { Empty } from '../parts/states.tsx'
import { Table } from '../parts/table.tsx'
import { accountOf, Link, usePlace } from '../router.tsx'
import { describeFailure } from '../texts/service.ts'
import { useLocalized } from '../texts.ts'

type Event = Json<TailEvent>

const REFRESH_MS = 1_000
const ROWS_MAX = 300
const SOURCES = ['line', 'mbox', 'tracking']
const KINDS = [
  'message',
  'follow',
  'unfollow',
  'postback',
  'join',
  'leave',
  'memberJoined',
  'memberLeft',
  'unsend',
]

export function LivePage() {
  const { t } = useLocalized()
  const { query } = usePlace()
  const [isPaused, setPaused] = useState(false)
  const filter = { account: accountOf(query), source: query.get('source'), kind: query.get('kind') }
  const { events, isOpen } = useTail(`/api/live${queryOf(filter)}`, isPaused)
  return (
    <Page
      title={t.live.title}
      lead={t.live.lead}
      actions={
        <>
          <span class={`pulse ${isPaused ? 'paused' : isOpen ? 'open' : ''}`} role="status">
            {isPaused ? t.live.paused : isOpen ? t.live.watching : t.live.connecting}
          </span>
          <button type="button" aria-pressed={isPaused} onClick={() => setPaused(!isPaused)}>
            {isPaused ? t.live.resume : t.live.pause}
          </button>
        </>
      }
    >
      <Filters {...filter} />
      {events.length === 0 ? (
        <Empty title={t.live.empty}>{t.live.emptyHelp}</Empty>
      ) : (
        <EventTable events={events} />
      )}
    </Page>
  )
}

/** Keeps the events of earlier responses. */
function useTail(path: string, isPaused: boolean) {
  const { data, error } = useQuery<{ events: Event[] }>(isPaused ? null : path, REFRESH_MS)
  const shown = useRef<{ path: string; events: Event[] }>({ path, events: [] })
  if (shown.current.path !== path) shown.current = { path, events: [] }
  const known = new Set(shown.current.events.map(({ id }) => id))
  const fresh = data?.events.filter(({ id }) => !known.has(id)) ?? []
  if (fresh.length > 0) shown.current.events = [...fresh, ...shown.current.events].slice(0, ROWS_MAX)
  return { events: shown.current.events, isOpen: data !== undefined && error === undefined }
}

function Filters({ account, source, kind }: Record<'account' | 'source' | 'kind', string | null>) {
  const { t } = useLocalized()
  const choice = (name: 'source' | 'kind', value: string | null, options: string[], any: string) => (
    <ChoiceFilter
      name={name}
      value={value}
      label={t.live[name]}
      options={[['', any], ...options.map((option) => [option, option] as const)]}
    />
  )
  return (
    <div class="filters">
      <AccountFilter account={account} />
      {choice('source', source, SOURCES, t.live.anySource)}
      {choice('kind', kind, KINDS, t.live.anyKind)}
    </div>
  )
}

function EventTable({ events }: { events: Event[] }) {
  const { t, clock } = useLocalized()
  return (
    <Table
      class="live"
      rows={events}
      header={1}
      headerClass="kind"
      columns={[
        [t.live.time, ({ receivedAt }) => clock(receivedAt), undefined, 'clock'],
        [
          t.live.event,
          ({ id, kind, source, failure, accountName }) => (
            <>
              <Link href={`/events/${id}`}>{kind}</Link> <span class="tag">{source}</span>{' '}
              {failure !== null && <span class="tag bad long">{describeFailure(t, failure)}</span>}
              <div class="sub narrow-only">{accountName}</div>
            </>
          ),
        ],
        [
          t.common.account,
          ({ accountId, accountName }) => <Link href={`/accounts/${accountId}`}>{accountName}</Link>,
          'medium-only',
        ],
        [
          t.live.person,
          ({ accountId, userId }) => <PersonLink accountId={accountId} userId={userId} />,
          'medium-only',
          'mono',
        ],
      ]}
    />
  )
}
