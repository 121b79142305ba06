/** All stored events with their filters, and what an operator does with all that failed. */
import { useState } from 'preact/hooks'
import type { ListedEvent } from '../../src/intake/list-events.ts'
import { type Json, queryOf } from '../api.ts'
import { useInterval, useList } from '../hooks.ts'
import { pathOf, startJob, useRead } from '../operations.ts'
import { DialogButton } from '../parts/dialog.tsx'
import { AccountFilter, ChoiceFilter, DaysFilter, daysOf, TextFilter } from '../parts/filters.tsx'
import { TextField, useFields } from '../parts/form.tsx'
import { type Job, JobDialog } from '../parts/job.tsx'
import { Page } from '../parts/page.tsx'
import { PersonLink } from '../parts/person.tsx'
import { Empty, ListView } from '../parts/states.tsx'
import { Table } from '../parts/table.tsx'
import { Time } from '../parts/values.tsx'
import { accountOf, Link, replaceQuery, usePlace } from '../router.tsx'
import { useRole } from '../session.ts'
import { describeFailure } from '../texts/service.ts'
import { stateIn, useLocalized } from '../texts.ts'

type Event = Json<ListedEvent>

/** Outcome of an event that could be applied. */
export const APPLIED = 'applied'

const REFRESH_MS = 2_000
const REASON_MAX_LENGTH = 256
const STATUSES = ['failed', 'set-aside'] as const
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
] as const

export function EventsPage() {
  const { t } = useLocalized()
  const { query } = usePlace()
  const [isFollowing, setFollowing] = useState(false)
  const isManager = useRole('manager')
  const selection = { account: accountOf(query), failure: query.get('reason') }
  const status = STATUSES.find((each) => each === query.get('status')) ?? null
  const others = {
    ...daysOf(query),
    ...Object.fromEntries(['kind', 'user', 'key'].map((name) => [name, query.get(name)])),
  }
  const filter = queryOf({ ...selection, status, ...others })
  const list = useList<Event>(pathOf('event.list', null) + filter, 'events')
  useInterval(isFollowing ? REFRESH_MS : null, () => list.isLoading || list.reload())
  // These act on all failed events of an account and a reason.
  const isSelection = status === 'failed' && queryOf(others) === '' && list.items.length > 0
  return (
    <Page
      title={t.events.title}
      lead={t.events.lead}
      actions={
        <>
          {isManager && isSelection && <AllFailed filter={selection} onClosed={list.reload} />}
          <button type="button" aria-pressed={isFollowing} onClick={() => setFollowing(!isFollowing)}>
            {t.events.follow}
          </button>
        </>
      }
    >
      <Filters query={query} status={status} />
      <ListView
        list={isFollowing ? { ...list, hasMore: false } : list}
        empty={
          list.hasMore ? (
            <Empty title={t.events.noMatchYet}>{t.events.noMatchYetHelp}</Empty>
          ) : (
            <Empty title={filter === '' ? t.events.empty : t.events.noMatch}>
              {filter === '' && t.events.emptyHelp}
            </Empty>
          )
        }
      >
        {(events) => <EventTable events={events} />}
      </ListView>
    </Page>
  )
}

function Filters({ query, status }: { query: URLSearchParams; status: string | null }) {
  const { t } = useLocalized()
  const account = accountOf(query)
  return (
    <div class="filters">
      <AccountFilter account={account} clears={['reason']} />
      <ChoiceFilter
        name="status"
        label={t.common.status}
        value={status}
        options={[['', t.common.all], ...STATUSES.map((each) => [each, t.events.statuses[each]] as const)]}
        onChoose={(chosen) => replaceQuery({ status: chosen, reason: null })}
      />
      {status === 'failed' && <ReasonFilter account={account} failure={query.get('reason')} />}
      <ChoiceFilter
        name="kind"
        label={t.events.kind}
        value={query.get('kind')}
        options={[['', t.events.anyKind], ...KINDS.map((kind) => [kind, t.eventKinds.line[kind]] as const)]}
      />
      <TextFilter name="user" label={t.audience.userId} value={query.get('user')} />
      <TextFilter name="key" label={t.events.key} value={query.get('key')} />
      <DaysFilter query={query} />
    </div>
  )
}

function ReasonFilter({ account, failure }: { account: string | null; failure: string | null }) {
  const { t, number } = useLocalized()
  const { data } = useRead('event.reasons', null, { account })
  const reasons = data?.reasons ?? []
  const isListed = failure === null || reasons.some((reason) => reason.failure === failure)
  return (
    <ChoiceFilter
      name="reason"
      label={t.events.reason}
      class="grow"
      value={failure}
      options={[
        ['', t.events.anyReason],
        ...(isListed ? [] : [[failure, describeFailure(t, failure)] as const]),
        ...reasons.map(
          (each) => [each.failure, `${describeFailure(t, each.failure)} (${number(each.count)})`] as const,
        ),
      ]}
    />
  )
}

function EventTable({ events }: { events: Event[] }) {
  const { t } = useLocalized()
  return (
    <Table
      class="events"
      rows={events}
      columns={[
        [
          t.events.event,
          ({ id, kind, source, accountName }) => (
            <>
              <Link href={`/events/${id}`}>{stateIn(t.eventKinds.line, kind)}</Link>{' '}
              <span class="tag">{stateIn(t.events.sources, source)}</span>
              <div class="sub narrow-only">{accountName}</div>
            </>
          ),
        ],
        [t.common.status, (event) => <EventStatus event={event} />, undefined, 'reason'],
        [
          t.common.account,
          ({ accountId, accountName }) => <Link href={`/accounts/${accountId}`}>{accountName}</Link>,
          'medium-only',
        ],
        [t.events.person, (event) => <PersonLink {...event} />, 'wide-only', 'clip'],
        [t.events.received, ({ receivedAt }) => <Time at={receivedAt} />, 'numeric'],
      ]}
    />
  )
}

/** Whether it was applied, or why not. */
export function EventStatus({
  event: { failure, setAside },
}: {
  event: Pick<Event, 'failure' | 'setAside'>
}) {
  const { t } = useLocalized()
  if (failure === null) return <span class="tag good">{t.events.wasApplied}</span>
  return (
    <>
      {setAside === null ? (
        <span class="tag bad">{t.events.statuses.failed}</span>
      ) : (
        <span class="tag">{t.events.statuses['set-aside']}</span>
      )}{' '}
      {describeFailure(t, failure)}
      {setAside !== null && <div class="sub">{setAside}</div>}
    </>
  )
}

interface Selection {
  account: string | null
  failure: string | null
}

function AllFailed({ filter, onClosed }: { filter: Selection; onClosed: () => void }) {
  const { t } = useLocalized()
  const given = Object.fromEntries(Object.entries(filter).filter(([, value]) => value))
  return (
    <>
      <DialogButton label={t.events.setAsideAll} onClosed={onClosed}>
        {(close) => (
          <SetAside
            onClose={close}
            onSubmit={(reason) => startJob('event.set-aside-all', null, { ...given, reason })}
          />
        )}
      </DialogButton>
      <DialogButton label={t.events.retryAll} onClosed={onClosed}>
        {(close) => (
          <JobDialog
            title={t.events.retryAll}
            submit={t.events.retryRun}
            onClose={close}
            onSubmit={() => startJob('event.retry-all', null, given)}
          >
            <p>{t.events.retryText}</p>
          </JobDialog>
        )}
      </DialogButton>
    </>
  )
}

/** @param onSubmit returns the job, if there is one */
export function SetAside({
  onClose,
  onSubmit,
}: {
  onClose: () => void
  onSubmit: (reason: string) => Promise<Job | undefined>
}) {
  const { t } = useLocalized()
  const { values, field } = useFields({ reason: '' })
  return (
    <JobDialog
      title={t.events.setAside}
      submit={t.events.setAsideRun}
      isComplete={values.reason.trim() !== ''}
      onClose={onClose}
      onSubmit={() => onSubmit(values.reason.trim())}
    >
      <p>{t.events.setAsideText}</p>
      <TextField
        {...field('reason')}
        label={t.events.setAsideReason}
        hint={t.events.setAsideHint}
        maxLength={REASON_MAX_LENGTH}
        autocomplete="off"
      />
    </JobDialog>
  )
}
