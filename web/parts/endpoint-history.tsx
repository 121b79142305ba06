/** The last refused attempts to send to an endpoint. */
import { useState } from 'preact/hooks'
import { type Result, useRead } from '../operations.ts'
import { fill, useLocalized } from '../texts.ts'
import { RequestDialog } from './deliveries.tsx'
import { ResponseTag } from './destination.tsx'
import { Facts, Panel } from './page.tsx'
import { Failure } from './states.tsx'
import { Table } from './table.tsx'
import { Payload, Time } from './values.tsx'

type Attempt = Result<'endpoint.history'>['attempts'][number]

const REFRESH_MS = 10_000

export function EndpointHistory({ id }: { id: string }) {
  const { t, number } = useLocalized()
  // Not in the row, which may leave the list while its dialog is open.
  const [open, setOpen] = useState<Attempt | null>(null)
  const query = useRead('endpoint.history', id, {}, REFRESH_MS)
  const attempts = query.data?.attempts ?? []
  return (
    <Panel title={t.endpoints.history}>
      <p class="muted small-text">{t.endpoints.historyLead}</p>
      {query.error && <Failure error={query.error} retry={query.reload} />}
      {query.data?.attempts.length === 0 && <p class="muted">{t.endpoints.historyEmpty}</p>}
      {attempts.length > 0 && <AttemptTable attempts={attempts} onOpen={setOpen} />}
      {open && (
        <RequestDialog
          endpoint={id}
          delivery={open.deliveryId}
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

function AttemptTable({ attempts, onOpen }: { attempts: Attempt[]; onOpen: (attempt: Attempt) => void }) {
  const { t, number } = useLocalized()
  const durationOf = ({ durationMs }: Attempt) =>
    fill(t.endpoints.milliseconds, { number: number(durationMs) })
  const eventsOf = ({ events }: Attempt) => (events === null ? '–' : number(events))
  return (
    <Table
      rows={attempts}
      keyOf={({ deliveryId, attempt, startedAt }) => `${deliveryId} ${attempt} ${startedAt}`}
      headerClass=""
      columns={[
        [t.endpoints.time, ({ startedAt }) => <Time at={startedAt} />],
        [
          t.endpoints.response,
          (attempt) => (
            <>
              <span class="response">
                <ResponseTag wasAccepted={false} status={attempt.status}>
                  <span>{attempt.reason}</span>
                </ResponseTag>
              </span>
              <div class="sub narrow-only">
                {[
                  durationOf(attempt),
                  fill(t.endpoints.eventsOf, { count: eventsOf(attempt) }),
                  fill(t.endpoints.attemptOf, { number: number(attempt.attempt) }),
                ].join(' · ')}
              </div>
            </>
          ),
        ],
        [t.endpoints.duration, durationOf, 'numeric medium-only'],
        [t.endpoints.events, eventsOf, 'numeric medium-only'],
        [t.endpoints.attempt, ({ attempt }) => number(attempt), 'numeric medium-only'],
        [
          null,
          (attempt) => (
            <button
              type="button"
              class="small"
              aria-label={`${t.endpoints.showRequest}, ${fill(t.endpoints.attemptTitle, { attempt: number(attempt.attempt), delivery: attempt.deliveryId })}`}
              onClick={() => onOpen(attempt)}
            >
              {t.endpoints.showRequest}
            </button>
          ),
          undefined,
          'numeric',
        ],
      ]}
    />
  )
}
