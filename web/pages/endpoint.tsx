/** One endpoint: what was sent, its settings, and what operators do with it. */
import type { ComponentChildren } from 'preact'
import { useState } from 'preact/hooks'
import { useAction } from '../hooks.ts'
import { perform, type Result, startJob, useRead } from '../operations.ts'
import { ActivityLink } from '../parts/activity.tsx'
import { Deliveries } from '../parts/deliveries.tsx'
import { ResponseTag, TestDialog } from '../parts/destination.tsx'
import { DialogButton } from '../parts/dialog.tsx'
import { EndpointChart } from '../parts/endpoint-chart.tsx'
import { EditEndpoint } from '../parts/endpoint-form.tsx'
import { EndpointState, LastResponse } from '../parts/endpoint-table.tsx'
import { useKindText } from '../parts/event-kinds.tsx'
import { FormDialog, TextField } from '../parts/form.tsx'
import { type Job, JobProgress } from '../parts/job.tsx'
import { Facts, Page, Panel } from '../parts/page.tsx'
import { SettingsActions } from '../parts/rotation.tsx'
import { SendAgain } from '../parts/send-again.tsx'
import { ActionFailure, Loaded } from '../parts/states.tsx'
import { Count, Payload, Time } from '../parts/values.tsx'
import { Link, navigate } from '../router.tsx'
import { useRole } from '../session.ts'
import { describeCondition, describeFailure } from '../texts/service.ts'
import { fill, useLocalized } from '../texts.ts'

type Endpoint = Result<'endpoint.show'>['endpoint']

const REFRESH_MS = 10_000

export function EndpointPage({ id }: { id: string }) {
  const { t } = useLocalized()
  const isManager = useRole('manager')
  const query = useRead('endpoint.show', id, {}, REFRESH_MS)
  const [round, setRound] = useState(0)
  const endpoint = query.data?.endpoint
  const onChange = () => {
    query.reload()
    setRound((count) => count + 1)
  }
  return (
    <Page
      title={endpoint?.name || `${t.endpoints.endpoint} ${id}`}
      trail={<Link href="/endpoints">{t.nav.endpoints}</Link>}
      lead={
        endpoint && (
          <>
            <EndpointState endpoint={endpoint} />{' '}
            <Link href={`/accounts/${endpoint.accountId}`}>{endpoint.accountName}</Link>
          </>
        )
      }
      actions={endpoint && isManager && <Actions {...{ endpoint, onChange }} />}
    >
      <Loaded query={query}>
        {({ endpoint, hours }) => (
          <>
            <Backlog endpoint={endpoint} />
            <EndpointChart hours={hours} />
            <Deliveries key={round} endpoint={endpoint} />
            <Settings {...{ endpoint, onChange }} />
            <SendAgain {...{ endpoint, onChange }} />
            <ActivityLink kind="endpoint" id={id} />
          </>
        )}
      </Loaded>
    </Page>
  )
}

function Actions({ endpoint, onChange }: { endpoint: Endpoint; onChange: () => void }) {
  const { t } = useLocalized()
  const { id, status, failed } = endpoint
  const { isRunning, error, run } = useAction()
  const [message, setMessage] = useState('')
  const [job, setJob] = useState<Job>()
  const change = (action: 'pause' | 'resume') =>
    run(async () => {
      await perform(`endpoint.${action}`, id)
      setJob(undefined)
      setMessage(action === 'pause' ? t.endpoints.paused : t.endpoints.resumed)
      onChange()
    })
  const retry = () =>
    run(async () => {
      setJob(await startJob('endpoint.retry', id))
      setMessage('')
      onChange()
    })
  return (
    <>
      {job && <JobProgress key={job.id} started={job} onEnd={onChange} />}
      <span role="status" class="muted small-text">
        {message}
      </span>
      <ActionFailure error={error} />
      {failed > 0 && (
        <button type="button" class="primary" disabled={isRunning} onClick={retry}>
          {t.endpoints.retryFailed}
        </button>
      )}
      <button
        type="button"
        disabled={isRunning}
        onClick={() => change(status === 'active' ? 'pause' : 'resume')}
      >
        {status === 'active' ? t.endpoints.pause : t.endpoints.resume}
      </button>
      <DialogButton label={t.endpoints.test}>
        {(close) => (
          <TestDialog
            send={() => perform('endpoint.test', id)}
            title={t.endpoints.testTitle}
            intro={t.endpoints.testText}
            onClose={close}
          >
            {(result) => <TestResult result={result} />}
          </TestDialog>
        )}
      </DialogButton>
      <DialogButton class="danger quiet-danger" label={t.endpoints.remove}>
        {(close) => <RemoveEndpoint endpoint={endpoint} onClose={close} />}
      </DialogButton>
    </>
  )
}

function Backlog({ endpoint }: { endpoint: Endpoint }) {
  const { t, duration } = useLocalized()
  const { pending, failed, countedMax: max, oldestPendingSeconds: oldest } = endpoint
  const cards: Array<[string, ComponentChildren]> = [
    [t.endpoints.pending, <Count key="p" value={pending} max={max} />],
    [t.endpoints.failed, <Count key="f" value={failed} max={max} />],
    [t.endpoints.oldest, oldest === null ? '–' : duration(oldest)],
  ]
  return (
    <dl class="cards">
      {cards.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>
            <b>{value}</b>
          </dd>
        </div>
      ))}
      <div>
        <dt>{t.endpoints.lastResponse}</dt>
        <dd>
          <LastResponse endpoint={endpoint} />
        </dd>
      </div>
    </dl>
  )
}

const linesOf = (lines: ComponentChildren[]) => lines.map((line, at) => <div key={at}>{line}</div>)

function Settings({ endpoint, onChange }: { endpoint: Endpoint; onChange: () => void }) {
  const { t } = useLocalized()
  const isManager = useRole('manager')
  const kindText = useKindText()
  const { groups } = t.endpoints
  const { condition, unknownEvents: unknown } = endpoint
  const yes = (value: boolean) => (value ? t.common.yes : t.common.no)
  return (
    <Panel
      title={t.endpoints.settings}
      actions={
        isManager && (
          <SettingsActions
            of="endpoint"
            id={endpoint.id}
            isRotating={endpoint.isRotating}
            canRotate={endpoint.format === 'members'}
            changeLabel={t.endpoints.edit}
            change={(onClose, onSaved) => (
              <EditEndpoint endpoint={endpoint} onClose={onClose} onSaved={onSaved} />
            )}
            onChange={onChange}
          />
        )
      }
    >
      <h3>{groups.where}</h3>
      <Facts
        items={[
          [t.endpoints.url, <code key="u">{endpoint.url}</code>],
          [
            t.common.account,
            <Link key="a" href={`/accounts/${endpoint.accountId}`}>
              {endpoint.accountName}
            </Link>,
          ],
          [t.endpoints.format, t.endpoints.formats[endpoint.format]],
        ]}
      />
      <h3>{groups.what}</h3>
      <Facts
        items={[
          [t.endpoints.events, linesOf(endpoint.events?.map(kindText) ?? [t.eventKinds.all])],
          unknown.length > 0 && [t.endpoints.unknownEvents, unknown.join(', ')],
          [
            t.endpoints.condition,
            linesOf(condition ? describeCondition(t, JSON.stringify(condition)) : [t.common.all]),
          ],
        ]}
      />
      <h3>{groups.how}</h3>
      <Facts
        items={[
          [t.endpoints.replies, yes(endpoint.replies)],
          [t.endpoints.priority, String(endpoint.priority)],
          [t.endpoints.privateNetwork, yes(endpoint.allowPrivateNetwork)],
          [t.common.created, <Time key="c" at={endpoint.createdAt} />],
        ]}
      />
    </Panel>
  )
}

const headerLines = (headers: Array<[string, string]>) => headers.map(([name, value]) => `${name}: ${value}`)

function TestResult({ result: { request, response } }: { result: Result<'endpoint.test'> }) {
  const { t, number } = useLocalized()
  const { status, reason, durationMs, headers, body, isCut } = response
  const wasAccepted = status !== null && status >= 200 && status < 300
  const sent = [`POST ${request.url}`, ...headerLines(Object.entries(request.headers)), '', request.body]
  const received = [...headerLines(headers as Array<[string, string]>), '', body].join('\n').trim()
  const duration = fill(t.endpoints.milliseconds, { number: number(durationMs) })
  return (
    <>
      <h3>{t.endpoints.testResponse}</h3>
      <p class="response">
        <ResponseTag wasAccepted={wasAccepted} status={status}>
          {[duration, reason && describeFailure(t, reason)].filter(Boolean).join(' · ')}
        </ResponseTag>
      </p>
      {received !== '' && <Payload text={received} isShort />}
      {isCut && <p class="muted small-text">{t.endpoints.testCut}</p>}
      <h3>{t.endpoints.testRequest}</h3>
      <Payload text={sent.join('\n')} />
    </>
  )
}

/** Requires the name to be typed if deliveries are lost. */
function RemoveEndpoint({ endpoint, onClose }: { endpoint: Endpoint; onClose: () => void }) {
  const { t, number } = useLocalized()
  const [typed, setTyped] = useState('')
  const { id, name, pending, failed } = endpoint
  const lost = pending + failed
  const expected = name.trim() || id
  const remove = async () => {
    const job = await startJob('endpoint.remove', id)
    navigate(job ? `/settings/jobs/${job.id}` : '/endpoints')
  }
  return (
    <FormDialog
      title={t.endpoints.removeTitle}
      submit={t.endpoints.removeSubmit}
      isComplete={lost === 0 || [expected, id].includes(typed.trim())}
      onClose={onClose}
      onSubmit={remove}
      isDangerous
    >
      <p>{t.endpoints.removeText}</p>
      {lost > 0 && (
        <>
          <p class="notice warning">{fill(t.endpoints.removeLost, { count: number(lost) })}</p>
          <TextField
            name="confirmation"
            label={fill(t.endpoints.removeConfirm, { text: expected })}
            autocomplete="off"
            value={typed}
            onChange={setTyped}
          />
        </>
      )}
    </FormDialog>
  )
}
