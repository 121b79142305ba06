/** Events that could not be applied, by account and reason, and their retry. */
import { useCallback, useRef, useState } from 'preact/hooks'
import type { FailureReason, RetriedBatch, RetryPosition, UnappliedEvent } from '../../src/operator/events.ts'
import { get, type Json, post, queryOf } from '../api.ts'
import { useAction, useList, useQuery } from '../hooks.ts'
import { AccountFilter } from '../parts/account-filter.tsx'
import { Dialog } from '../parts/dialog.tsx'
import { Page } from '../parts/page.tsx'
import { ActionFailure, Empty, ListView } from '../parts/states.tsx'
import { Table } from '../parts/table.tsx'
import { Time } from '../parts/values.tsx'
import { accountOf, Link, replaceQuery, usePlace } from '../router.tsx'
import { describeFailure } from '../texts/failures.ts'
import { useLocalized } from '../texts.ts'

type Event = Json<UnappliedEvent>

/** Outcome of an event that could be applied. */
export const APPLIED = 'applied'

export function EventsPage() {
  const { t } = useLocalized()
  const { query } = usePlace()
  const account = accountOf(query)
  const failure = query.get('reason')
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
          {!isListed && <option value={failure}>{describeFailure(t.eventFailures, failure)}</option>}
          {reasons.map((reason) => (
            <option key={reason.failure} value={reason.failure}>
              {`${describeFailure(t.eventFailures, reason.failure)} (${number(reason.count)})`}
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
          <td class="reason">{describeFailure(t.eventFailures, event.failure ?? '')}</td>
          <td class="numeric">
            <Time at={event.receivedAt} />
          </td>
        </tr>
      ))}
    </Table>
  )
}

/** Sends one batch after another, so that no request takes long and the operator can stop. */
function RetryAll({
  account,
  failure,
  onClose,
}: {
  account: string | null
  failure: string | null
  onClose: () => void
}) {
  const { t, number } = useLocalized()
  const { isRunning, error, run } = useAction()
  const [counts, setCounts] = useState({ applied: 0, failed: 0 })
  const [isDone, setDone] = useState(false)
  const isStopped = useRef(false)
  const retry = () =>
    run(async () => {
      let after: Json<RetryPosition> | null = null
      const sum = { applied: 0, failed: 0 }
      const filter = { ...(account && { account }), ...(failure && { failure }) }
      do {
        const batch: Json<RetriedBatch> = await post('/api/events/retry', {
          ...filter,
          ...(after && { after }),
        })
        for (const { outcome } of batch.outcomes) sum[outcome === APPLIED ? 'applied' : 'failed'] += 1
        setCounts({ ...sum })
        after = batch.next
      } while (after !== null && !isStopped.current)
      setDone(true)
    })
  const close = () => {
    isStopped.current = true
    onClose()
  }
  const shown = [number(counts.applied), number(counts.failed)] as const
  return (
    <Dialog title={t.events.retryTitle} onClose={close}>
      <p>{t.events.retryText}</p>
      <p role="status">
        {isDone ? t.events.retryDone(...shown) : isRunning ? t.events.retryProgress(...shown) : ''}
      </p>
      {isRunning && <progress aria-label={t.events.retryTitle} />}
      <ActionFailure error={error} />
      <footer class="actions">
        <button type="button" onClick={close}>
          {isRunning ? t.events.retryStop : t.common.close}
        </button>
        {!isDone && (
          <button type="button" class="primary" disabled={isRunning} onClick={retry}>
            {t.events.retryRun}
          </button>
        )}
      </footer>
    </Dialog>
  )
}
