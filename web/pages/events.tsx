/** Events that could not be applied, by account and reason, and their retry. */
import { useState } from 'preact/hooks'
import type { FailureReason, UnappliedEvent } from '../../src/audience/events.ts'
import { type Json, post, queryOf } from '../api.ts'
import { useAction, useList, useQuery } from '../hooks.ts'
import { Dialog, DialogButton } from '../parts/dialog.tsx'
import { AccountFilter, ChoiceFilter } from '../parts/filters.tsx'
import { Page } from '../parts/page.tsx'
import { ActionFailure, Empty, ListView } from '../parts/states.tsx'
import { Table } from '../parts/table.tsx'
import { type Task, TaskProgress } from '../parts/task.tsx'
import { Time } from '../parts/values.tsx'
import { accountOf, Link, usePlace } from '../router.tsx'
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
  const filter = queryOf({ account, failure })
  const list = useList<Event>(`/api/events${filter}`, 'events')
  const retry = (
    <DialogButton label={t.events.retryAll} onClosed={list.reload}>
      {(close) => <RetryAll account={account} failure={failure} onClose={close} />}
    </DialogButton>
  )
  return (
    <Page title={t.events.title} lead={t.events.lead} actions={isManager && list.items.length > 0 && retry}>
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
    </div>
  )
}

function EventTable({ events }: { events: Event[] }) {
  const { t } = useLocalized()
  return (
    <Table
      rows={events}
      columns={[
        [
          t.events.event,
          ({ id, kind, source, accountName }) => (
            <>
              <Link href={`/events/${id}`}>{kind}</Link>
              <div class="sub">
                {source} · {id}
              </div>
              <div class="sub narrow-only">{accountName}</div>
            </>
          ),
        ],
        [
          t.common.account,
          ({ accountId, accountName }) => <Link href={`/accounts/${accountId}`}>{accountName}</Link>,
          'medium-only',
        ],
        [t.events.reason, ({ failure }) => describeFailure(t, failure ?? ''), undefined, 'reason'],
        [t.events.received, ({ receivedAt }) => <Time at={receivedAt} />, 'numeric'],
      ]}
    />
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
      setTask((await post<{ job: Task }>('/api/events/retry-all', filter)).job)
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
