/** Endpoints with their backlog and last response. */
import { endpointState } from '../../src/operator/endpoints/endpoint-state.ts'
import type { EndpointSummary } from '../../src/operator/endpoints/endpoints.ts'
import type { Json } from '../api.ts'
import { Link } from '../router.tsx'
import { stateIn, useLocalized } from '../texts.ts'
import { Table } from './table.tsx'
import { Count } from './values.tsx'

type Endpoint = Json<EndpointSummary>

/** The service counts no further. */
export const COUNTED_MAX = 10_000

export function EndpointTable({
  endpoints,
  withoutAccount = false,
}: {
  endpoints: Endpoint[]
  withoutAccount?: boolean
}) {
  const { t } = useLocalized()
  return (
    <Table
      columns={[
        t.endpoints.endpoint,
        ...(withoutAccount ? [] : [t.common.account]),
        t.common.status,
        { label: t.endpoints.pending, class: 'numeric' },
        { label: t.endpoints.failed, class: 'numeric' },
        { label: t.endpoints.lastResponse, class: 'medium-only' },
      ]}
    >
      {endpoints.map((endpoint) => (
        <EndpointRow key={endpoint.id} endpoint={endpoint} withoutAccount={withoutAccount} />
      ))}
    </Table>
  )
}

function EndpointRow({ endpoint, withoutAccount }: { endpoint: Endpoint; withoutAccount: boolean }) {
  const { t } = useLocalized()
  return (
    <tr>
      <th scope="row" class="col-account">
        <Link href={`/endpoints/${endpoint.id}`}>{endpoint.name || t.endpoints.noName}</Link>
        <div class="sub">
          {endpoint.format} · {endpoint.url}
        </div>
        <div class="sub narrow-only">
          <LastResponse endpoint={endpoint} />
        </div>
      </th>
      {!withoutAccount && (
        <td>
          <Link href={`/accounts/${endpoint.accountId}`}>{endpoint.accountName}</Link>
        </td>
      )}
      <td>
        <EndpointState endpoint={endpoint} />
      </td>
      <td class="numeric">
        <Count value={endpoint.pending} max={COUNTED_MAX} />
      </td>
      <td class="numeric">
        <span class={endpoint.failed > 0 ? 'bad-text' : ''}>
          <Count value={endpoint.failed} max={COUNTED_MAX} />
        </span>
      </td>
      <td class="medium-only">
        <LastResponse endpoint={endpoint} />
      </td>
    </tr>
  )
}

const TONES: Record<string, string> = { active: 'good', failing: 'bad' }

export function EndpointState({ endpoint }: { endpoint: Endpoint }) {
  const { t } = useLocalized()
  const state = endpointState(endpoint)
  return (
    <span>
      <span class={`tag ${TONES[state] ?? 'warning'}`}>{stateIn(t.endpoints.states, state)}</span>
      {endpoint.isRotating && <span class="tag"> {t.endpoints.rotating}</span>}
    </span>
  )
}

export function LastResponse({ endpoint: { lastAnswer } }: { endpoint: Endpoint }) {
  const { t, relative } = useLocalized()
  if (lastAnswer === null) return <span class="muted">{t.endpoints.nothingSent}</span>
  const isAccepted = lastAnswer.status !== null && lastAnswer.status >= 200 && lastAnswer.status < 300
  return (
    <span class="response">
      <span class={`tag ${isAccepted ? 'good' : 'bad'}`}>{lastAnswer.status ?? t.endpoints.noResponse}</span>{' '}
      <span class="muted">{relative(lastAnswer.at)}</span>{' '}
      <span class="clip">{isAccepted ? '' : lastAnswer.text}</span>
    </span>
  )
}
