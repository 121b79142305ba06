/** One endpoint: what it has not accepted, with request and answer, and pause, resume and retry. */
import { useCallback, useState } from 'preact/hooks'
import type { Resumption } from '../../src/endpoints/manage.ts'
import type { DeliveryPage, DeliveryRequest, EndpointSummary } from '../../src/operator/endpoints.ts'
import { get, type Json, post, queryOf } from '../api.ts'
import { useAction, useList, useQuery } from '../hooks.ts'
import { Dialog } from '../parts/dialog.tsx'
import { COUNTED_MAX, EndpointState, LastAnswer } from '../parts/endpoint-table.tsx'
import { indented } from '../parts/json.ts'
import { Facts, Page, Panel } from '../parts/page.tsx'
import { ActionFailure, Failure, Loading, More } from '../parts/states.tsx'
import { Count, Time } from '../parts/values.tsx'
import { Link, replaceQuery, usePlace } from '../router.tsx'
import { useLocalized } from '../texts.ts'

type Endpoint = Json<EndpointSummary>
type Delivery = Json<DeliveryPage>['deliveries'][number]

const REFRESH_MS = 10_000

export function EndpointPage({ id }: { id: string }) {
  const { t } = useLocalized()
  const { data, error, reload } = useQuery<{ endpoint: Endpoint }>(`/api/endpoints/${id}`, REFRESH_MS)
  const [round, setRound] = useState(0)
  const trail = <Link href="/endpoints">{t.nav.endpoints}</Link>
  const endpoint = data?.endpoint
  if (endpoint === undefined) {
    return (
      <Page title={`${t.endpoints.endpoint} ${id}`} trail={trail}>
        {error ? <Failure error={error} retry={reload} /> : <Loading />}
      </Page>
    )
  }
  const onChange = () => {
    reload()
    setRound((count) => count + 1)
  }
  return (
    <Page
      title={endpoint.name || `${t.endpoints.endpoint} ${id}`}
      trail={trail}
      lead={
        <>
          <EndpointState endpoint={endpoint} />{' '}
          <Link href={`/accounts/${endpoint.accountId}`}>{endpoint.accountName}</Link>
        </>
      }
      actions={<Actions endpoint={endpoint} onChange={onChange} />}
    >
      <Settings endpoint={endpoint} />
      <Deliveries key={round} endpoint={endpoint} />
    </Page>
  )
}

function Actions({
  endpoint: { id, status, failed },
  onChange,
}: {
  endpoint: Endpoint
  onChange: () => void
}) {
  const { t, number } = useLocalized()
  const { isRunning, error, run } = useAction()
  const [message, setMessage] = useState('')
  const act = (work: () => Promise<string>) =>
    run(async () => {
      setMessage(await work())
      onChange()
    })
  const pause = async () => {
    await post(`/api/endpoints/${id}/pause`)
    return t.endpoints.paused
  }
  // Both work in batches, so that no request takes long.
  const resume = async () => {
    let answer = await post<{ rest: Json<Resumption> | null }>(`/api/endpoints/${id}/resume`)
    while (answer.rest !== null) answer = await post(`/api/endpoints/${id}/resume`, answer.rest)
    return t.endpoints.resumed
  }
  const retry = async () => {
    let sum = 0
    for (let isLast = false; !isLast; ) {
      const batch = await post<{ retried: number; isLast: boolean }>(`/api/endpoints/${id}/retry`)
      sum += batch.retried
      isLast = batch.isLast
      setMessage(t.endpoints.working(number(sum)))
    }
    return t.endpoints.retried(number(sum))
  }
  return (
    <>
      <span role="status" class="muted small-text">
        {message}
      </span>
      <ActionFailure error={error} />
      {failed > 0 && (
        <button type="button" class="primary" disabled={isRunning} onClick={() => act(retry)}>
          {t.endpoints.retryFailed}
        </button>
      )}
      <button type="button" disabled={isRunning} onClick={() => act(status === 'active' ? pause : resume)}>
        {status === 'active' ? t.endpoints.pause : t.endpoints.resume}
      </button>
    </>
  )
}

function Settings({ endpoint }: { endpoint: Endpoint }) {
  const { t } = useLocalized()
  const { oldestPendingSeconds } = endpoint
  const oldest =
    oldestPendingSeconds === null ? null : new Date(Date.now() - oldestPendingSeconds * 1000).toISOString()
  const yes = (value: boolean) => (value ? t.common.yes : t.common.no)
  return (
    <Panel title={t.endpoints.settings}>
      <Facts
        items={[
          [t.endpoints.url, <code key="u">{endpoint.url}</code>],
          [t.endpoints.format, endpoint.format],
          [t.endpoints.events, endpoint.events?.join(', ') ?? t.common.all],
          [t.endpoints.pending, <Count key="p" value={endpoint.pending} max={COUNTED_MAX} />],
          [t.endpoints.failed, <Count key="f" value={endpoint.failed} max={COUNTED_MAX} />],
          [t.endpoints.oldest, oldest === null ? '–' : <Time key="o" at={oldest} />],
          [t.endpoints.lastAnswer, <LastAnswer key="l" endpoint={endpoint} />],
          [t.endpoints.replies, yes(endpoint.replies)],
          [t.endpoints.privateNetwork, yes(endpoint.allowPrivateNetwork)],
          [t.common.created, <Time key="c" at={endpoint.createdAt} />],
        ]}
      />
    </Panel>
  )
}

const STATUSES = ['failed', 'pending'] as const

function Deliveries({ endpoint: { id, failed } }: { endpoint: Endpoint }) {
  const { t } = useLocalized()
  const asked = usePlace().query.get('deliveries')
  const status = STATUSES.find((name) => name === asked) ?? (failed > 0 ? 'failed' : 'pending')
  const [open, setOpen] = useState<Delivery | null>(null)
  const load = useCallback(
    (cursor: string | null, signal: AbortSignal) => {
      const [dueUs = null, after = null] = cursor?.split('.') ?? []
      return get<Json<DeliveryPage>>(
        `/api/endpoints/${id}/deliveries${queryOf({ status, dueUs, after })}`,
        signal,
      ).then(({ deliveries, next }) => ({ items: deliveries, next: next && `${next.dueUs}.${next.id}` }))
    },
    [id, status],
  )
  const list = useList(load)
  return (
    <Panel
      title={t.endpoints.deliveries}
      actions={
        <fieldset class="chips">
          <legend class="visually-hidden">{t.common.filter}</legend>
          {STATUSES.map((name) => (
            <button
              key={name}
              type="button"
              aria-pressed={status === name}
              onClick={() => replaceQuery({ deliveries: name })}
            >
              {t.endpoints[name]}
            </button>
          ))}
        </fieldset>
      }
    >
      {list.error && <Failure error={list.error} retry={list.reload} />}
      {list.items.length === 0 && list.isLoading && <Loading />}
      {list.items.length === 0 && !list.isLoading && !list.error && (
        <p class="muted">{status === 'failed' ? t.endpoints.noFailed : t.endpoints.noPending}</p>
      )}
      {list.items.length > 0 && <DeliveryTable deliveries={list.items} onOpen={setOpen} />}
      <More list={list} />
      {open && <RequestDialog endpointId={id} delivery={open} onClose={() => setOpen(null)} />}
    </Panel>
  )
}

function DeliveryTable({
  deliveries,
  onOpen,
}: {
  deliveries: Delivery[]
  onOpen: (delivery: Delivery) => void
}) {
  const { t, number } = useLocalized()
  return (
    <div class="table-frame">
      <table>
        <thead>
          <tr>
            <th scope="col">{t.endpoints.delivery}</th>
            <th scope="col">{t.endpoints.content}</th>
            <th scope="col" class="numeric">
              {t.endpoints.attempts}
            </th>
            <th scope="col" class="medium-only">
              {t.endpoints.lastAnswer}
            </th>
            <th scope="col" class="numeric medium-only">
              {t.endpoints.next}
            </th>
            <th scope="col">
              <span class="visually-hidden">{t.common.actions}</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {deliveries.map((delivery) => (
            <tr key={delivery.id}>
              <th scope="row">{delivery.id}</th>
              <td>{delivery.type ?? t.endpoints.eventsOf(number(delivery.events ?? 0))}</td>
              <td class="numeric">{delivery.attempts}</td>
              <td class="medium-only clip">
                {delivery.lastAnswer === null ? '–' : `${delivery.lastStatus ?? ''} ${delivery.lastAnswer}`}
              </td>
              <td class="numeric medium-only">
                {delivery.status === 'sending' ? (
                  t.endpoints.sending
                ) : delivery.dueAt === null ? (
                  '–'
                ) : (
                  <Time at={delivery.dueAt} />
                )}
              </td>
              <td class="numeric">
                <button
                  type="button"
                  class="small"
                  aria-label={`${t.endpoints.showRequest}, ${delivery.id}`}
                  onClick={() => onOpen(delivery)}
                >
                  {t.endpoints.showRequest}
                </button>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  )
}

function RequestDialog({
  endpointId,
  delivery,
  onClose,
}: {
  endpointId: string
  delivery: Delivery
  onClose: () => void
}) {
  const { t } = useLocalized()
  const { data, error } = useQuery<{ request: DeliveryRequest }>(
    `/api/endpoints/${endpointId}/deliveries/${delivery.id}`,
  )
  const request = data?.request
  return (
    <Dialog title={t.endpoints.requestTitle(delivery.id)} onClose={onClose} isWide>
      <h3>{t.endpoints.request}</h3>
      {error && <Failure error={error} />}
      {request && request.body === null && <p class="muted">{t.endpoints.requestNone}</p>}
      {request && request.body !== null && (
        <pre class="payload">
          {`POST ${request.url}\n`}
          {Object.entries(request.headers).map(([name, value]) => `${name}: ${value}\n`)}
          {`\n${indented(request.body)}`}
        </pre>
      )}
      <h3>{t.endpoints.answer}</h3>
      {delivery.lastAnswer === null ? (
        <p class="muted">{t.endpoints.noAnswer}</p>
      ) : (
        <pre class="payload short">{`${delivery.lastStatus ?? t.endpoints.noResponse}\n${delivery.lastAnswer}`}</pre>
      )}
    </Dialog>
  )
}
