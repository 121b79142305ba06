/** Events that could not be applied, by account and reason, and their retry. */
import { useCallback, useState } from 'preact/hooks'
import type { FailureReason, UnappliedEvent } from '../../src/operator/events.ts'
import { get, type Json, post, queryOf } from '../api.ts'
import { useAction, useList, useQuery } from '../hooks.ts'
import { AccountFilter } from '../parts/account-filter.tsx'
import { Dialog } from '../parts/dialog.tsx'
import { Page } from '../parts/page.tsx'
import { ActionFailure, Empty, ListView } from '../parts/states.tsx'
import { Table } from '../parts/table.tsx'
import { type Task, TaskProgress } from '../parts/task.tsx'
import { Time } from '../parts/values.tsx'
import { accountOf, Link, replaceQuery, usePlace } from '../router.tsx'
import { useRole } from '../session.ts'
import { describeFailure } from '../texts/service.ts'
import { useLocalized } from '../texts.ts'

type Event = Json<UnappliedEvent>

/** Outcome of an event that could be applied. */
export const APPLIED = 'applied'

export function EventsPage() {
  const { t } = useLocalized()
  const { query } = usePlace()
  const account = accountOf(query)
  const failure = query.get('reason')
  const isManager = useRole('manager')
  const [isRetrying, setRetrying] = useState(false)
  const filter = queryOf({ account, failure })
  const load = useCallback(
    (before: string | null, signal: AbortSignal) =>
      get<{ events: Event[]; next: string | null }>(
        `/api/events${queryOf({ account, failure, before })}`,
        signal,
      ).then(({ events, next }) => ({ items: events, next })),
    [account, failure],
  )
  const list = useList(load)
  return (
    <Page
      title={t.events.title}
      lead={t.events.lead}
      actions={
        isManager &&
        list.items.length > 0 && (
          <button type="button" onClick={() => setRetrying(true)}>
            {t.events.retryAll}
          </button>
        )
      }
    >
      <Filters account={account} failure={failure} />
      <ListView
        list={list}
        empty={
          <Empty title={filter === '' ? t.events.empty : t.events.noMatch}>
            {filter === '' && t.events.emptyHelp}
          </Empty>
        }
      >
        {(events) => <EventTable events={events} />}
      </ListView>
      {isRetrying && (
        <RetryAll
          account={account}
          failure={failure}
          onClose={() => {
            setRetrying(false)
            list.reload()
          }}
        />
      )}
    </Page>
  )
}

function Filters({ account, failure }: { account: string | null; failure: string | null }) {
  const { t, number } = useLocalized()
  const { data } = useQuery<{ reasons: FailureReason[] }>(`/api/events/reasons${queryOf({ account })}`)
  const reasons = data?.reasons ?? []
  const isListed = failure === null || reasons.some((reason) => reason.failure === failure)
  return (
    <div class="filters">
      <AccountFilter account={account} clears={['reason']} />
      <div class="field grow">
        <label for="reason">{t.events.reason}</label>
        <select
          id="reason"
          value={failure ?? ''}
          onChange={(event) => replaceQuery({ reason: event.currentTarget.value })}
        >
          <option value="">{t.events.anyReason}</option>
          {!isListed && <option value={failure}>{describeFailure(t, failure)}</option>}
          {reasons.map((reason) => (
            <option key={reason.failure} value={reason.failure}>
              {`${describeFailure(t, reason.failure)} (${number(reason.count)})`}
            </option>
          ))}
        </select>
      </div>
    </div>
  )
}

function EventTable({ events }: { events: Event[] }) {
  const { t } = useLocalized()
  return (
    <Table
      columns={[
        t.events.event,
        { label: t.common.account, class: 'medium-only' },
        t.events.reason,
        { label: t.events.received, class: 'numeric' },
      ]}
    >
      {events.map((event) => (
        <tr key={event.id}>
          <th scope="row" class="col-account">
            <Link href={`/events/${event.id}`}>{event.kind}</Link>
            <div class="sub">
              {event.source} · {event.id}
            </div>
            <div class="sub narrow-only">{event.accountName}</div>
          </th>
          <td class="medium-only">
            <Link href={`/accounts/${event.accountId}`}>{event.accountName}</Link>
          </td>
          <td class="reason">{describeFailure(t, event.failure ?? '')}</td>
          <td class="numeric">
            <Time at={event.receivedAt} />
          </td>
        </tr>
      ))}
    </Table>
  )
}

function RetryAll({
  account,
  failure,
  onClose,
}: {
  account: string | null
  failure: string | null
  onClose: () => void
}) {
  const { t } = useLocalized()
  const { isRunning, error, run } = useAction()
  const [task, setTask] = useState<Task>()
  const retry = () =>
    run(async () => {
      const filter = { ...(account && { account }), ...(failure && { failure }) }
      setTask((await post<{ job: Task }>('/api/events/retry', filter)).job)
    })
  return (
    <Dialog title={t.events.retryTitle} onClose={onClose}>
      <p>{t.events.retryText}</p>
      {task && <TaskProgress started={task} />}
      <ActionFailure error={error} />
      <footer class="actions">
        <button type="button" onClick={onClose}>
          {t.common.close}
        </button>
        {!task && (
          <button type="button" class="primary" disabled={isRunning} onClick={retry}>
            {t.events.retryRun}
          </button>
        )}
      </footer>
    </Dialog>
  )
}
