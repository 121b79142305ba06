/** The last attempts to send to an endpoint. */
import type { DeliveryAttempt } from '../../src/operator/endpoints/endpoint-history.ts'
import type { Json } from '../api.ts'
import { useQuery } from '../hooks.ts'
import { useLocalized } from '../texts.ts'
import { Panel } from './page.tsx'
import { Failure } from './states.tsx'
import { Table } from './table.tsx'
import { Time } from './values.tsx'

type Attempt = Json<DeliveryAttempt>

const REFRESH_MS = 10_000

export function EndpointHistory({ id }: { id: string }) {
  const { t } = useLocalized()
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
          ]}
        >
          {data.attempts.map((attempt) => (
            <AttemptRow
              key={`${attempt.deliveryId} ${attempt.attempt} ${attempt.startedAt}`}
              attempt={attempt}
            />
          ))}
        </Table>
      )}
    </Panel>
  )
}

function AttemptRow({ attempt: { startedAt, wasAccepted, status, reason, ...rest } }: { attempt: Attempt }) {
  const { t, number } = useLocalized()
  const duration = t.endpoints.milliseconds(number(rest.durationMs))
  const events = rest.events === null ? '–' : number(rest.events)
  return (
    <tr>
      <th scope="row">
        <Time at={startedAt} />
      </th>
      <td>
        <span class="response">
          <span class={`tag ${wasAccepted ? 'good' : 'bad'}`}>{status ?? t.endpoints.noResponse}</span>{' '}
          <span>{reason}</span>
        </span>
        <div class="sub narrow-only">
          {[duration, t.endpoints.eventsOf(events), t.endpoints.attemptOf(number(rest.attempt))].join(' · ')}
        </div>
      </td>
      <td class="numeric medium-only">{duration}</td>
      <td class="numeric medium-only">{events}</td>
      <td class="numeric medium-only">{number(rest.attempt)}</td>
    </tr>
  )
}
