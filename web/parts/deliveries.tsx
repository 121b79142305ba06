/** The deliveries of an endpoint: what it has accepted, as far as that is known, what waits and what has failed. */
import { useState } from 'preact/hooks'
import type { DeliveryRequest, EndpointSummary } from '../../src/endpoints/endpoints.ts'
import type { Json } from '../api.ts'
import { serverNowMs } from '../clock.ts'
import { useInterval, useList } from '../hooks.ts'
import { pathOf, type Result, useRead } from '../operations.ts'
import { Link, replaceQuery, usePlace } from '../router.tsx'
import { describeFailure } from '../texts/service.ts'
import { fill, useLocalized } from '../texts.ts'
import { ResponseTag } from './destination.tsx'
import { Dialog } from './dialog.tsx'
import { useKindText } from './event-kinds.tsx'
import { Chips } from './filters.tsx'
import { indented } from './json.ts'
import { Facts, Panel } from './page.tsx'
import { PersonLink } from './person.tsx'
import { Failure, ListView } from './states.tsx'
import { Table } from './table.tsx'
import { Payload, Time } from './values.tsx'

type Endpoint = Json<EndpointSummary>
type Delivery = Result<'endpoint.deliveries'>['deliveries'][number]
type Attempt = Result<'endpoint.history'>['attempts'][number]

const REFRESH_MS = 10_000
const PAGE_SIZE = 50
const STATUSES = ['sent', 'failed', 'pending', 'accepted'] as const
const TONES: Record<string, string> = { accepted: 'good', failed: 'bad', pending: 'warning' }

export function Deliveries({ endpoint: { id, accountId, format, failed } }: { endpoint: Endpoint }) {
  const { t } = useLocalized()
  const { failed: failedText, pending, accepted } = t.endpoints
  const labels = { sent: t.common.all, failed: failedText, pending, accepted }
  // What an endpoint has accepted is known from events, and changes of members are none.
  const known = format === 'line' ? STATUSES : STATUSES.slice(1, 3)
  const asked = usePlace().query.get('deliveries')
  const status =
    known.find((name) => name === asked) ?? (format === 'line' ? 'sent' : failed > 0 ? 'failed' : 'pending')
  const list = useList<Delivery>(`${pathOf('endpoint.deliveries', id)}?status=${status}`, 'deliveries')
  useInterval(list.items.length > PAGE_SIZE ? null : REFRESH_MS, () => list.isLoading || list.reload())
  const history = useRead('endpoint.history', id, {}, REFRESH_MS).data?.attempts ?? []
  // Not in the row, which may leave the list while its dialog is open.
  const [open, setOpen] = useState<Delivery | null>(null)
  const attemptsOf = (delivery: Delivery) => history.filter(({ deliveryId }) => deliveryId === delivery.id)
  return (
    <Panel
      title={t.endpoints.deliveries}
      actions={
        <Chips label={t.common.filter}>
          {known.map((name) => (
            <button
              key={name}
              type="button"
              aria-pressed={status === name}
              onClick={() => replaceQuery({ deliveries: name })}
            >
              {labels[name]}
            </button>
          ))}
        </Chips>
      }
    >
      <p class="muted small-text">
        {format === 'line' ? t.endpoints.deliveriesLead : t.endpoints.deliveriesMembers}
      </p>
      <ListView list={list} empty={<p class="muted">{t.endpoints.noDeliveries[status]}</p>}>
        {(deliveries) => <DeliveryTable {...{ accountId, deliveries, attemptsOf }} onOpen={setOpen} />}
      </ListView>
      {open?.id && (
        <DeliveryDialog
          {...{ endpoint: id, id: open.id, delivery: open, attempts: attemptsOf(open) }}
          onClose={() => setOpen(null)}
        />
      )}
    </Panel>
  )
}

function DeliveryTable({
  accountId,
  deliveries,
  attemptsOf,
  onOpen,
}: {
  accountId: string
  deliveries: Delivery[]
  attemptsOf: (delivery: Delivery) => Attempt[]
  onOpen: (delivery: Delivery) => void
}) {
  const { t, number } = useLocalized()
  const kindText = useKindText()
  const eventsOf = ({ events }: Delivery) => fill(t.endpoints.eventsOf, { count: number(events ?? 1) })
  const personOf = ({ type, userId, memberId, displayName }: Delivery) => (
    <PersonLink
      accountId={accountId}
      userId={userId ?? (type === 'member.erased' ? null : memberId)}
      displayName={displayName}
    />
  )
  const durationOf = (delivery: Delivery) => {
    const ms = attemptsOf(delivery)[0]?.durationMs
    return ms === undefined ? '' : fill(t.endpoints.milliseconds, { number: number(ms) })
  }
  return (
    <Table
      class="events"
      rows={deliveries}
      keyOf={({ id, eventId }) => `${id} ${eventId}`}
      columns={[
        [
          t.events.event,
          (delivery) => {
            const { type, kind, eventId, events, isReplay, createdAt } = delivery
            const name = kindText(type ?? kind) ?? eventsOf(delivery)
            return (
              <>
                {eventId === null ? name : <Link href={`/events/${eventId}`}>{name}</Link>}{' '}
                {kind !== null && (events ?? 1) > 1 && <span class="tag">{eventsOf(delivery)}</span>}
                {isReplay && <span class="tag">{t.again.tag}</span>}
                <div class="sub unless-wide">
                  {personOf(delivery)}{' '}
                  <span class="narrow-only">
                    · <Time at={createdAt} />
                  </span>
                </div>
              </>
            )
          },
        ],
        [t.events.person, personOf, 'wide-only', 'clip'],
        [
          t.common.status,
          ({ status, dueAt, lastStatus, lastAnswer }) => (
            <>
              <span class={`tag ${TONES[status] ?? ''}`}>{t.endpoints.outcomes[status]}</span>
              {status === 'pending' && Date.parse(dueAt ?? '') > serverNowMs() && (
                <div class="sub">
                  {t.endpoints.next} <Time at={dueAt} />
                </div>
              )}
              {lastAnswer !== null && (
                <div class="sub narrow-only">
                  {[lastStatus, describeFailure(t, lastAnswer)].join(' ').trim()}
                </div>
              )}
            </>
          ),
        ],
        [
          t.endpoints.response,
          (delivery) =>
            delivery.lastAnswer === null ? (
              '–'
            ) : (
              <span class="response">
                <ResponseTag wasAccepted={false} status={delivery.lastStatus}>
                  <span class="muted">{durationOf(delivery)}</span>{' '}
                  <span class="clip">{describeFailure(t, delivery.lastAnswer)}</span>
                </ResponseTag>
              </span>
            ),
          'medium-only',
        ],
        [t.endpoints.attempts, ({ attempts }) => attempts ?? '–', 'numeric wide-only'],
        [t.endpoints.time, ({ createdAt }) => <Time at={createdAt} />, 'numeric medium-only'],
        [
          null,
          (delivery) =>
            delivery.id !== null && (
              <button
                type="button"
                class="small"
                aria-label={`${t.endpoints.show}: ${t.endpoints.showRequest}, ${fill(t.endpoints.requestTitle, { id: delivery.id })}`}
                onClick={() => onOpen(delivery)}
              >
                {t.endpoints.show}
              </button>
            ),
          undefined,
          'numeric',
        ],
      ]}
    />
  )
}

/** The refused attempts of a delivery, and its request as it would be sent now. */
function DeliveryDialog({
  endpoint,
  id,
  delivery: { lastStatus, lastAnswer },
  attempts,
  onClose,
}: {
  endpoint: string
  id: string
  delivery: Delivery
  attempts: Attempt[]
  onClose: () => void
}) {
  const { t } = useLocalized()
  const { data, error } = useRead('endpoint.delivery', endpoint, { delivery: id })
  const request = data?.request
  const isGone = error?.status === 404
  return (
    <Dialog title={fill(t.endpoints.requestTitle, { id })} onClose={onClose} isWide>
      {attempts.map((attempt) => (
        <RefusedAttempt key={`${attempt.attempt} ${attempt.startedAt}`} attempt={attempt} />
      ))}
      {attempts.length === 0 && (
        <>
          <h3>{t.endpoints.lastResponse}</h3>
          {lastAnswer === null ? (
            <p class="muted">{t.endpoints.nothingSent}</p>
          ) : (
            <Payload
              text={`${lastStatus ?? t.endpoints.noResponse}\n${describeFailure(t, lastAnswer)}`}
              isShort
            />
          )}
        </>
      )}
      <h3>{t.endpoints.request}</h3>
      {isGone && <p class="muted">{t.endpoints.deliveryGone}</p>}
      {error && !isGone && <Failure error={error} />}
      {request && request.body === null && <p class="muted">{t.endpoints.requestNone}</p>}
      {request && request.body !== null && <Payload text={requestText(request)} />}
    </Dialog>
  )
}

function RefusedAttempt({
  attempt: { attempt, startedAt, status, reason, responseText, durationMs },
}: {
  attempt: Attempt
}) {
  const { t, number } = useLocalized()
  return (
    <>
      <h3>{fill(t.endpoints.attemptOf, { number: number(attempt) })}</h3>
      <Facts
        items={[
          [t.endpoints.time, <Time key="t" at={startedAt} />],
          [
            t.endpoints.response,
            [status ?? t.endpoints.noResponse, describeFailure(t, reason)].join(' ').trim(),
          ],
          [t.endpoints.duration, fill(t.endpoints.milliseconds, { number: number(durationMs) })],
        ]}
      />
      {responseText === null ? (
        <p class="muted">{t.endpoints.responseNone}</p>
      ) : (
        <Payload text={responseText} isShort />
      )}
    </>
  )
}

function requestText({ url, headers, body }: DeliveryRequest): string {
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}`)
  return [`POST ${url}`, ...lines, '', indented(body ?? '')].join('\n')
}
