/** One stored event: what became of it, what its endpoints made of it, and its content. */
import { useState } from 'preact/hooks'
import { useAction } from '../hooks.ts'
import { perform, type Result, useRead } from '../operations.ts'
import { DialogButton } from '../parts/dialog.tsx'
import { indented } from '../parts/json.ts'
import { Facts, Page, Panel } from '../parts/page.tsx'
import { PersonLink } from '../parts/person.tsx'
import { ActionFailure, Loaded } from '../parts/states.tsx'
import { Table } from '../parts/table.tsx'
import { CopyButton, Payload, Time } from '../parts/values.tsx'
import { Link } from '../router.tsx'
import { useRole } from '../session.ts'
import { describeFailure } from '../texts/service.ts'
import { fill, stateIn, useLocalized } from '../texts.ts'
import { APPLIED, EventStatus, SetAside } from './events.tsx'

type Shown = Result<'event.show'>

export function EventPage({ id }: { id: string }) {
  const { t } = useLocalized()
  const query = useRead('event.show', id)
  const isManager = useRole('manager')
  const action = useAction()
  const [outcome, setOutcome] = useState<string | null>(null)
  const trail = <Link href="/events">{t.nav.events}</Link>
  const retry = () =>
    action.run(async () => {
      const retried = await perform('event.retry', id)
      setOutcome(retried.outcome)
      // An event that was applied is stored again under another id.
      if (retried.outcome !== APPLIED) query.reload()
    })
  const event = query.data?.event
  const setAside = (reason: string | null) => perform('event.set-aside', id, { reason })
  const isOpen = isManager && event?.failure != null && outcome !== APPLIED
  return (
    <Page
      title={fill(t.events.one, { id })}
      trail={trail}
      actions={
        isOpen && (
          <>
            {event.setAside === null ? (
              <DialogButton label={t.events.setAsideOne} onClosed={query.reload}>
                {(close) => <SetAside onClose={close} onSubmit={setAside} />}
              </DialogButton>
            ) : (
              <button
                type="button"
                disabled={action.isRunning}
                onClick={() => action.run(() => setAside(null).then(query.reload))}
              >
                {t.events.takeBack}
              </button>
            )}
            <button type="button" class="primary" disabled={action.isRunning} onClick={retry}>
              {t.events.retryOne}
            </button>
          </>
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
      <Loaded query={query}>{(loaded) => <Details {...loaded} />}</Loaded>
    </Page>
  )
}

function Details({ event, deliveries }: Shown) {
  const { t, dateTime } = useLocalized()
  return (
    <>
      <Panel title={t.events.event}>
        <Facts
          items={[
            [
              t.common.account,
              <Link key="a" href={`/accounts/${event.accountId}`}>
                {event.accountName}
              </Link>,
            ],
            [t.events.person, event.userId && <PersonLink key="p" {...event} />],
            [t.events.source, stateIn(t.events.sources, event.source)],
            [t.events.kind, stateIn(t.eventKinds.line, event.kind)],
            [t.events.occurred, dateTime(event.occurredAt)],
            [t.events.received, dateTime(event.receivedAt)],
            [t.common.status, <EventStatus key="s" event={event} />],
          ]}
        />
      </Panel>
      {deliveries.length > 0 && (
        <Panel title={t.nav.endpoints}>
          <Deliveries deliveries={deliveries} />
        </Panel>
      )}
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

function Deliveries({ deliveries }: Pick<Shown, 'deliveries'>) {
  const { t, number } = useLocalized()
  return (
    <Table
      rows={deliveries}
      keyOf={({ endpointId, deliveryId }) => `${endpointId} ${deliveryId}`}
      columns={[
        [
          t.endpoints.endpoint,
          ({ endpointId, name, url, isReplay }) => (
            <>
              <Link href={`/endpoints/${endpointId}`}>{name || url}</Link>{' '}
              {isReplay && <span class="tag">{t.again.tag}</span>}
            </>
          ),
        ],
        [t.common.status, ({ outcome }) => t.events.outcomes[outcome]],
        [t.endpoints.attempts, ({ attempts }) => (attempts === null ? '–' : number(attempts)), 'numeric'],
        [t.endpoints.lastResponse, ({ lastStatus }) => lastStatus ?? '–', 'numeric medium-only'],
        [
          t.events.lastAttempt,
          ({ attempts, lastAttemptAt }) => (attempts === null ? '–' : <Time at={lastAttemptAt} />),
          'numeric medium-only',
        ],
      ]}
    />
  )
}
