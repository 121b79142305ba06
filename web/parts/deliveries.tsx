/** Deliveries that an endpoint has not accepted, with request and last response. */
import type { ComponentChildren } from 'preact'
import type { DeliveryRequest, DeliverySummary, EndpointSummary } from '../../src/endpoints/endpoints.ts'
import type { Json } from '../api.ts'
import { useItems, useRead } from '../operations.ts'
import { replaceQuery, usePlace } from '../router.tsx'
import { fill, useLocalized } from '../texts.ts'
import { Dialog, DialogButton } from './dialog.tsx'
import { Chips } from './filters.tsx'
import { indented } from './json.ts'
import { Panel } from './page.tsx'
import { Failure, ListView } from './states.tsx'
import { Table } from './table.tsx'
import { Payload, Time } from './values.tsx'

type Endpoint = Json<EndpointSummary>
type Delivery = Json<DeliverySummary>

const STATUSES = ['failed', 'pending'] as const

export function Deliveries({ endpoint: { id, failed } }: { endpoint: Endpoint }) {
  const { t } = useLocalized()
  const asked = usePlace().query.get('deliveries')
  const status = STATUSES.find((name) => name === asked) ?? (failed > 0 ? 'failed' : 'pending')
  const list = useItems('endpoint.deliveries', id, { status })
  return (
    <Panel
      title={t.endpoints.deliveries}
      actions={
        <Chips label={t.common.filter}>
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
        </Chips>
      }
    >
      <ListView
        list={list}
        empty={<p class="muted">{status === 'failed' ? t.endpoints.noFailed : t.endpoints.noPending}</p>}
      >
        {(deliveries) => <DeliveryTable id={id} deliveries={deliveries} />}
      </ListView>
    </Panel>
  )
}

function DeliveryTable({ id, deliveries }: { id: string; deliveries: Delivery[] }) {
  const { t, number } = useLocalized()
  const responseOf = ({ lastAnswer, lastStatus }: Delivery) =>
    lastAnswer === null ? '–' : `${lastStatus ?? ''} ${lastAnswer}`
  return (
    <Table
      rows={deliveries}
      headerClass=""
      columns={[
        [t.endpoints.delivery, (delivery) => delivery.id],
        [
          t.endpoints.content,
          (delivery) => (
            <>
              {delivery.type ?? fill(t.endpoints.eventsOf, { count: number(delivery.events ?? 0) })}{' '}
              {delivery.isReplay && <span class="tag">{t.again.tag}</span>}
              <div class="sub narrow-only">{responseOf(delivery)}</div>
            </>
          ),
        ],
        [t.endpoints.attempts, ({ attempts }) => attempts, 'numeric'],
        [t.endpoints.lastResponse, responseOf, 'medium-only', 'clip'],
        [
          t.endpoints.next,
          ({ status, dueAt }) =>
            status === 'sending' ? t.endpoints.sending : dueAt === null ? '–' : <Time at={dueAt} />,
          'numeric medium-only',
        ],
        [
          null,
          (delivery) => (
            <DialogButton
              class="small"
              label={t.endpoints.showRequest}
              describedBy={`${t.endpoints.showRequest}, ${delivery.id}`}
            >
              {(onClose) => (
                <RequestDialog
                  endpoint={id}
                  delivery={delivery.id}
                  title={fill(t.endpoints.requestTitle, { id: delivery.id })}
                  onClose={onClose}
                >
                  <h3>{t.endpoints.lastResponse}</h3>
                  {delivery.lastAnswer === null ? (
                    <p class="muted">{t.endpoints.nothingSent}</p>
                  ) : (
                    <Payload
                      text={`${delivery.lastStatus ?? t.endpoints.noResponse}\n${delivery.lastAnswer}`}
                      isShort
                    />
                  )}
                </RequestDialog>
              )}
            </DialogButton>
          ),
          undefined,
          'numeric',
        ],
      ]}
    />
  )
}

/** The request of a delivery as it would be sent now, and what is known of a response. */
export function RequestDialog({
  endpoint,
  delivery,
  title,
  onClose,
  children,
}: {
  endpoint: string
  delivery: string
  title: string
  onClose: () => void
  children: ComponentChildren
}) {
  const { t } = useLocalized()
  const { data, error } = useRead('endpoint.delivery', endpoint, { delivery })
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
