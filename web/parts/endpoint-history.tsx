/** The last refused attempts to send to an endpoint. */
import { useState } from 'preact/hooks'
import type { DeliveryAttempt } from '../../src/operator/endpoints/endpoint-history.ts'
import type { Json } from '../api.ts'
import { useQuery } from '../hooks.ts'
import { fill } from '../texts/languages.ts'
import { useLocalized } from '../texts.ts'
import { RequestDialog } from './deliveries.tsx'
import { Facts, Panel } from './page.tsx'
import { Failure } from './states.tsx'
import { Table } from './table.tsx'
import { Payload, Time } from './values.tsx'

type Attempt = Json<DeliveryAttempt>

const REFRESH_MS = 10_000

export function EndpointHistory({ id }: { id: string }) {
  const { t, number } = useLocalized()
  const [open, setOpen] = useState<Attempt | null>(null)
  const { data, error, reload } = useQuery<{ attempts: Attempt[] }>(
    `/api/endpoints/${id}/history`,
    REFRESH_MS,
  )
  return (
    <Panel title={t.endpoints.history}>
      <p class="muted small-text">{t.endpoints.historyLead}</p>
      {error && <Failure error={error} retry={reload} />}
      {data?.attempts.length === 0 && <p class="muted">{t.endpoints.historyEmpty}</p>}
      {data !== undefined && data.attempts.length > 0 && (
        <Table
          columns={[
            t.endpoints.time,
            t.endpoints.response,
            { label: t.endpoints.duration, class: 'numeric medium-only' },
            { label: t.endpoints.events, class: 'numeric medium-only' },
            { label: t.endpoints.attempt, class: 'numeric medium-only' },
            { label: t.common.actions, isHidden: true },
          ]}
        >
          {data.attempts.map((attempt) => (
            <AttemptRow
              key={`${attempt.deliveryId} ${attempt.attempt} ${attempt.startedAt}`}
              attempt={attempt}
              onOpen={setOpen}
            />
          ))}
        </Table>
      )}
      {open && (
        <RequestDialog
          endpointId={id}
          deliveryId={open.deliveryId}
          title={fill(t.endpoints.attemptTitle, { attempt: number(open.attempt), delivery: open.deliveryId })}
          onClose={() => setOpen(null)}
        >
          <AttemptResponse attempt={open} />
        </RequestDialog>
      )}
    </Panel>
  )
}

function AttemptResponse({
  attempt: { startedAt, status, reason, responseText, ...rest },
}: {
  attempt: Attempt
}) {
  const { t, number } = useLocalized()
  return (
    <>
      <Facts
        items={[
          [t.endpoints.time, <Time key="t" at={startedAt} />],
          [t.endpoints.response, [status ?? t.endpoints.noResponse, reason].join(' ').trim()],
          [t.endpoints.duration, fill(t.endpoints.milliseconds, { number: number(rest.durationMs) })],
          [t.endpoints.events, rest.events === null ? '–' : number(rest.events)],
        ]}
      />
      <h3>{t.endpoints.responseStart}</h3>
      {responseText === null ? (
        <p class="muted">{t.endpoints.responseNone}</p>
      ) : (
        <Payload text={responseText} isShort />
      )}
    </>
  )
}

function AttemptRow({ attempt, onOpen }: { attempt: Attempt; onOpen: (attempt: Attempt) => void }) {
  const { t, number } = useLocalized()
  const { startedAt, status, reason, ...rest } = attempt
  const duration = fill(t.endpoints.milliseconds, { number: number(rest.durationMs) })
  const events = rest.events === null ? '–' : number(rest.events)
  return (
    <tr>
      <th scope="row">
        <Time at={startedAt} />
      </th>
      <td>
        <span class="response">
          <span class="tag bad">{status ?? t.endpoints.noResponse}</span> <span>{reason}</span>
        </span>
        <div class="sub narrow-only">
          {[
            duration,
            fill(t.endpoints.eventsOf, { count: events }),
            fill(t.endpoints.attemptOf, { number: number(rest.attempt) }),
          ].join(' · ')}
        </div>
      </td>
      <td class="numeric medium-only">{duration}</td>
      <td class="numeric medium-only">{events}</td>
      <td class="numeric medium-only">{number(rest.attempt)}</td>
      <td class="numeric">
        <button
          type="button"
          class="small"
          aria-label={`${t.endpoints.showRequest}, ${fill(t.endpoints.attemptTitle, { attempt: number(rest.attempt), delivery: rest.deliveryId })}`}
          onClick={() => onOpen(attempt)}
        >
          {t.endpoints.showRequest}
        </button>
      </td>
    </tr>
  )
}
