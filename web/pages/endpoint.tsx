/** One endpoint: its settings, open and failed deliveries, history, and what operators do with it. */
import { useMemo, useState } from 'preact/hooks'
import type { EndpointSummary } from '../../src/operator/endpoints/endpoints.ts'
import { type Json, post } from '../api.ts'
import { serverNowMs } from '../clock.ts'
import { useAction, useQuery } from '../hooks.ts'
import { ActivityPanel } from '../parts/activity.tsx'
import { Deliveries } from '../parts/deliveries.tsx'
import { RemoveEndpoint, RotateSecret, TestEndpoint } from '../parts/endpoint-dialogs.tsx'
import { EditEndpoint } from '../parts/endpoint-form.tsx'
import { EndpointHistory } from '../parts/endpoint-history.tsx'
import { COUNTED_MAX, EndpointState, LastResponse } from '../parts/endpoint-table.tsx'
import { Facts, Page, Panel } from '../parts/page.tsx'
import { EndRotation } from '../parts/rotate-dialog.tsx'
import { SendAgain } from '../parts/send-again.tsx'
import { ActionFailure, Failure, Loading } from '../parts/states.tsx'
import { type Task, TaskProgress } from '../parts/task.tsx'
import { Count, Time } from '../parts/values.tsx'
import { Link } from '../router.tsx'
import { useRole } from '../session.ts'
import { useLocalized } from '../texts.ts'

type Endpoint = Json<EndpointSummary>

const REFRESH_MS = 10_000

export function EndpointPage({ id }: { id: string }) {
  const { t } = useLocalized()
  const isManager = useRole('manager')
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
      actions={isManager && <Actions endpoint={endpoint} onChange={onChange} />}
    >
      <Settings endpoint={endpoint} onChange={onChange} />
      <Deliveries key={`d${round}`} endpoint={endpoint} />
      <SendAgain endpoint={endpoint} onChange={onChange} />
      <EndpointHistory key={`h${round}`} id={id} />
      <ActivityPanel key={`a${round}`} kind="endpoint" id={id} />
    </Page>
  )
}

function Actions({ endpoint, onChange }: { endpoint: Endpoint; onChange: () => void }) {
  const { t } = useLocalized()
  const { id, status, failed } = endpoint
  const { isRunning, error, run } = useAction()
  const [message, setMessage] = useState('')
  const [task, setTask] = useState<Task>()
  const [open, setOpen] = useState<'test' | 'remove' | null>(null)
  const close = () => setOpen(null)
  const pause = () =>
    run(async () => {
      await post(`/api/endpoints/${id}/pause`)
      setTask(undefined)
      setMessage(t.endpoints.paused)
      onChange()
    })
  const start = (action: 'resume' | 'retry') =>
    run(async () => {
      setTask((await post<{ job: Task }>(`/api/endpoints/${id}/${action}`)).job)
      setMessage(action === 'resume' ? t.endpoints.resumed : '')
      onChange()
    })
  return (
    <>
      {task && <TaskProgress key={task.id} started={task} onEnd={onChange} />}
      <span role="status" class="muted small-text">
        {message}
      </span>
      <ActionFailure error={error} />
      {failed > 0 && (
        <button type="button" class="primary" disabled={isRunning} onClick={() => start('retry')}>
          {t.endpoints.retryFailed}
        </button>
      )}
      <button
        type="button"
        disabled={isRunning}
        onClick={() => (status === 'active' ? pause() : start('resume'))}
      >
        {status === 'active' ? t.endpoints.pause : t.endpoints.resume}
      </button>
      <button type="button" onClick={() => setOpen('test')}>
        {t.endpoints.test}
      </button>
      <button type="button" class="danger quiet-danger" onClick={() => setOpen('remove')}>
        {t.endpoints.remove}
      </button>
      {open === 'test' && <TestEndpoint id={id} onClose={close} />}
      {open === 'remove' && <RemoveEndpoint endpoint={endpoint} onClose={close} />}
    </>
  )
}

function Settings({ endpoint, onChange }: { endpoint: Endpoint; onChange: () => void }) {
  const { t } = useLocalized()
  const isManager = useRole('manager')
  const { oldestPendingSeconds } = endpoint
  const oldest = useMemo(
    () =>
      oldestPendingSeconds === null
        ? null
        : new Date(serverNowMs() - oldestPendingSeconds * 1000).toISOString(),
    [endpoint],
  )
  const yes = (value: boolean) => (value ? t.common.yes : t.common.no)
  return (
    <Panel
      title={t.endpoints.settings}
      actions={isManager && <SettingsActions {...{ endpoint, onChange }} />}
    >
      <Facts
        items={[
          [t.endpoints.url, <code key="u">{endpoint.url}</code>],
          [t.endpoints.format, endpoint.format],
          [t.endpoints.events, endpoint.events?.join(', ') ?? t.common.all],
          [t.endpoints.pending, <Count key="p" value={endpoint.pending} max={COUNTED_MAX} />],
          [t.endpoints.failed, <Count key="f" value={endpoint.failed} max={COUNTED_MAX} />],
          [t.endpoints.oldest, oldest === null ? '–' : <Time key="o" at={oldest} />],
          [t.endpoints.lastResponse, <LastResponse key="l" endpoint={endpoint} />],
          [t.endpoints.replies, yes(endpoint.replies)],
          [t.endpoints.privateNetwork, yes(endpoint.allowPrivateNetwork)],
          [t.common.created, <Time key="c" at={endpoint.createdAt} />],
        ]}
      />
    </Panel>
  )
}

function SettingsActions({ endpoint, onChange }: { endpoint: Endpoint; onChange: () => void }) {
  const { t } = useLocalized()
  const { id, format, isRotating } = endpoint
  const [open, setOpen] = useState<'edit' | 'rotate' | 'finish' | 'discard' | null>(null)
  const [message, setMessage] = useState('')
  const finish = (text: string) => {
    setOpen(null)
    setMessage(text)
    onChange()
  }
  const close = () => finish('')
  return (
    <>
      <span role="status" class="muted small-text">
        {message}
      </span>
      {format === 'members' && (
        <button type="button" onClick={() => setOpen(isRotating ? 'finish' : 'rotate')}>
          {isRotating ? t.endpoints.finish : t.endpoints.rotate}
        </button>
      )}
      {isRotating && (
        <button type="button" onClick={() => setOpen('discard')}>
          {t.endpoints.discard}
        </button>
      )}
      <button type="button" onClick={() => setOpen('edit')}>
        {t.endpoints.edit}
      </button>
      {open === 'edit' && (
        <EditEndpoint endpoint={endpoint} onClose={close} onSaved={() => finish(t.endpoints.saved)} />
      )}
      {open === 'rotate' && <RotateSecret id={id} onClose={close} />}
      {open === 'finish' && (
        <EndRotation
          path={`/api/endpoints/${id}/finish-rotation`}
          title={t.endpoints.finish}
          text={t.endpoints.finishText}
          onClose={close}
          onDone={() => finish(t.endpoints.finished)}
        />
      )}
      {open === 'discard' && (
        <EndRotation
          path={`/api/endpoints/${id}/discard-rotation`}
          title={t.endpoints.discard}
          text={t.endpoints.discardText}
          onClose={close}
          onDone={() => finish(t.endpoints.discarded)}
        />
      )}
    </>
  )
}
