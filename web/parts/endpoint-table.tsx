/** Endpoints with their backlog and last response. */
import type { EndpointSummary } from '../../src/endpoints/endpoints.ts'
import type { Json } from '../api.ts'
import { Link } from '../router.tsx'
import { describeFailure } from '../texts/service.ts'
import { stateIn, useLocalized } from '../texts.ts'
import { ResponseTag } from './destination.tsx'
import { type Column, Table } from './table.tsx'
import { Count } from './values.tsx'

type Endpoint = Json<EndpointSummary>

export function EndpointTable({
  endpoints,
  withoutAccount = false,
}: {
  endpoints: Endpoint[]
  withoutAccount?: boolean
}) {
  const { t } = useLocalized()
  const account: Column<Endpoint> = [
    t.common.account,
    ({ accountId, accountName }) => <Link href={`/accounts/${accountId}`}>{accountName}</Link>,
  ]
  const columns: Array<Column<Endpoint>> = [
    [t.endpoints.endpoint, (endpoint) => <Name endpoint={endpoint} />],
    ...(withoutAccount ? [] : [account]),
    [t.common.status, (endpoint) => <EndpointState endpoint={endpoint} />],
    [t.endpoints.pending, ({ pending, countedMax }) => <Count value={pending} max={countedMax} />, 'numeric'],
    [
      t.endpoints.failed,
      ({ failed, countedMax }) => (
        <span class={failed > 0 ? 'bad-text' : ''}>
          <Count value={failed} max={countedMax} />
        </span>
      ),
      'numeric',
    ],
    [t.endpoints.lastResponse, (endpoint) => <LastResponse endpoint={endpoint} />, 'medium-only'],
  ]
  return <Table columns={columns} rows={endpoints} />
}

function Name({ endpoint }: { endpoint: Endpoint }) {
  const { t } = useLocalized()
  return (
    <>
      <Link href={`/endpoints/${endpoint.id}`}>{endpoint.name || t.endpoints.noName}</Link>
      <div class="sub">
        {endpoint.format} · {endpoint.url}
      </div>
      <div class="sub narrow-only">
        <LastResponse endpoint={endpoint} />
      </div>
    </>
  )
}

const TONES: Record<string, string> = { active: 'good', failing: 'bad' }

export function EndpointState({ endpoint }: { endpoint: Endpoint }) {
  const { t } = useLocalized()
  const { state } = endpoint
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
  const { status, at, text } = lastAnswer
  const wasAccepted = status !== null && status >= 200 && status < 300
  return (
    <span class="response">
      <ResponseTag wasAccepted={wasAccepted} status={status}>
        <span class="muted">{relative(at)}</span>{' '}
        <span class="clip">{wasAccepted ? '' : describeFailure(t, text)}</span>
      </ResponseTag>
    </span>
  )
}
