/** Deliveries that an endpoint has not accepted, with request and last response. */
import type { ComponentChildren } from 'preact'
import { useCallback, useState } from 'preact/hooks'
import type {
  DeliveryPage,
  DeliveryRequest,
  EndpointSummary,
} from '../../src/operator/endpoints/endpoints.ts'
import { get, type Json, queryOf } from '../api.ts'
import { useList, useQuery } from '../hooks.ts'
import { replaceQuery, usePlace } from '../router.tsx'
import { fill } from '../texts/languages.ts'
import { useLocalized } from '../texts.ts'
import { Dialog } from './dialog.tsx'
import { indented } from './json.ts'
import { Panel } from './page.tsx'
import { Failure, ListView } from './states.tsx'
import { Table } from './table.tsx'
import { Payload, Time } from './values.tsx'

type Endpoint = Json<EndpointSummary>
type Delivery = Json<DeliveryPage>['deliveries'][number]

const STATUSES = ['failed', 'pending'] as const

export function Deliveries({ endpoint: { id, failed } }: { endpoint: Endpoint }) {
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
      <ListView
        list={list}
        empty={<p class="muted">{status === 'failed' ? t.endpoints.noFailed : t.endpoints.noPending}</p>}
      >
        {(deliveries) => <DeliveryTable deliveries={deliveries} onOpen={setOpen} />}
      </ListView>
      {open && (
        <RequestDialog
          endpointId={id}
          deliveryId={open.id}
          title={fill(t.endpoints.requestTitle, { id: open.id })}
          onClose={() => setOpen(null)}
        >
          <h3>{t.endpoints.lastResponse}</h3>
          {open.lastAnswer === null ? (
            <p class="muted">{t.endpoints.nothingSent}</p>
          ) : (
            <Payload text={`${open.lastStatus ?? t.endpoints.noResponse}\n${open.lastAnswer}`} isShort />
          )}
        </RequestDialog>
      )}
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
  const { t } = useLocalized()
  return (
    <Table
      columns={[
        t.endpoints.delivery,
        t.endpoints.content,
        { label: t.endpoints.attempts, class: 'numeric' },
        { label: t.endpoints.lastResponse, class: 'medium-only' },
        { label: t.endpoints.next, class: 'numeric medium-only' },
        { label: t.common.actions, isHidden: true },
      ]}
    >
      {deliveries.map((delivery) => (
        <DeliveryRow key={delivery.id} delivery={delivery} onOpen={onOpen} />
      ))}
    </Table>
  )
}

function DeliveryRow({ delivery, onOpen }: { delivery: Delivery; onOpen: (delivery: Delivery) => void }) {
  const { t, number } = useLocalized()
  const response = delivery.lastAnswer === null ? '–' : `${delivery.lastStatus ?? ''} ${delivery.lastAnswer}`
  return (
    <tr>
      <th scope="row">{delivery.id}</th>
      <td>
        {delivery.type ?? fill(t.endpoints.eventsOf, { count: number(delivery.events ?? 0) })}{' '}
        {delivery.isReplay && <span class="tag">{t.again.tag}</span>}
        <div class="sub narrow-only">{response}</div>
      </td>
      <td class="numeric">{delivery.attempts}</td>
      <td class="medium-only clip">{response}</td>
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
  )
}

/** The request of a delivery as it would be sent now, and what is known of a response. */
export function RequestDialog({
  endpointId,
  deliveryId,
  title,
  onClose,
  children,
}: {
  endpointId: string
  deliveryId: string
  title: string
  onClose: () => void
  children: ComponentChildren
}) {
  const { t } = useLocalized()
  const { data, error } = useQuery<{ request: DeliveryRequest }>(
    `/api/endpoints/${endpointId}/deliveries/${deliveryId}`,
  )
  const request = data?.request
  const isGone = error?.status === 404
  return (
    <Dialog title={title} onClose={onClose} isWide>
      {children}
      <h3>{t.endpoints.request}</h3>
      {isGone && <p class="muted">{t.endpoints.deliveryGone}</p>}
      {error && !isGone && <Failure error={error} />}
      {request && request.body === null && <p class="muted">{t.endpoints.requestNone}</p>}
      {request && request.body !== null && <Payload text={requestText(request)} />}
    </Dialog>
  )
}

function requestText({ url, headers, body }: DeliveryRequest): string {
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}`)
  return [`POST ${url}`, ...lines, '', indented(body ?? '')].join('\n')
}
