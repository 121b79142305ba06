import { useState } from 'preact/hooks'
import type { EventDetails, RetryOutcome } from '../../src/audience/events.ts'
import { type Json, post } from '../api.ts'
import { useAction, useQuery } from '../hooks.ts'
import { indented } from '../parts/json.ts'
import { Facts, Page, Panel } from '../parts/page.tsx'
import { ActionFailure, Loaded } from '../parts/states.tsx'
import { CopyButton, Payload } from '../parts/values.tsx'
import { Link } from '../router.tsx'
import { useRole } from '../session.ts'
import { describeFailure } from '../texts/service.ts'
import { fill, useLocalized } from '../texts.ts'
import { APPLIED } from './events.tsx'

export function EventPage({ id }: { id: string }) {
  const { t } = useLocalized()
  const query = useQuery<{ event: Json<EventDetails> }>(`/api/events/${id}`)
  const isManager = useRole('manager')
  const action = useAction()
  const [outcome, setOutcome] = useState<string | null>(null)
  const trail = <Link href="/events">{t.nav.events}</Link>
  const retry = () =>
    action.run(async () => {
      const retried = await post<Json<RetryOutcome>>(`/api/events/${id}/retry`)
      setOutcome(retried.outcome)
      // An event that was applied is stored again under another id.
      if (retried.outcome !== APPLIED) query.reload()
    })
  const event = query.data?.event
  return (
    <Page
      title={fill(t.events.one, { id })}
      trail={trail}
      actions={
        isManager &&
        event?.failure != null &&
        outcome !== APPLIED && (
          <button type="button" class="primary" disabled={action.isRunning} onClick={retry}>
            {t.events.retryOne}
          </button>
        )
      }
    >
      {outcome !== null && (
        <div class={`notice ${outcome === APPLIED ? 'good' : 'bad'}`} role="status">
          <p>
            {outcome === APPLIED
              ? t.events.applied
              : fill(t.events.stillFails, { reason: describeFailure(t, outcome) })}
          </p>
        </div>
      )}
      <ActionFailure error={action.error} />
      <Loaded query={query}>{(loaded) => <Details event={loaded.event} />}</Loaded>
    </Page>
  )
}

function Details({ event }: { event: Json<EventDetails> }) {
  const { t, dateTime } = useLocalized()
  return (
    <>
      <Panel title={t.events.event}>
        <Facts
          items={[
            [
              t.common.account,
              <Link key="a" href={`/accounts/${event.accountId}`}>
                {event.accountId}
              </Link>,
            ],
            [t.events.source, event.source],
            [t.events.kind, event.kind],
            [t.events.occurred, dateTime(event.occurredAt)],
            [t.events.received, dateTime(event.receivedAt)],
            [
              t.events.reason,
              event.failure === null ? t.events.wasApplied : describeFailure(t, event.failure),
            ],
          ]}
        />
      </Panel>
      <Panel
        title={t.events.payload}
        actions={event.payload !== null && <CopyButton text={event.payload} label={t.events.payload} />}
      >
        {event.payload === null ? (
          <p class="muted">{t.events.noPayload}</p>
        ) : (
          <Payload text={indented(event.payload)} />
        )}
      </Panel>
    </>
  )
}
