/** A test delivery, the rotation of the secret, and the removal of an endpoint. */
import { useEffect, useState } from 'preact/hooks'
import type { TestDelivery } from '../../src/endpoints/test-delivery.ts'
import type { EndpointSummary } from '../../src/operator/endpoints/endpoints.ts'
import { type Json, post } from '../api.ts'
import { useAction } from '../hooks.ts'
import { navigate } from '../router.tsx'
import { fill } from '../texts/languages.ts'
import { useLocalized } from '../texts.ts'
import { Confirm } from './dialog.tsx'
import { TextField } from './form.tsx'
import { RotateDialog } from './rotate-dialog.tsx'
import { ActionFailure } from './states.tsx'
import { TestDialog } from './test-dialog.tsx'
import { Payload } from './values.tsx'

type Endpoint = Json<EndpointSummary>

/** Sends a test as soon as it opens. */
export function TestEndpoint({ id, onClose }: { id: string; onClose: () => void }) {
  const { t } = useLocalized()
  const { isRunning, error, run } = useAction()
  const [result, setResult] = useState<Json<TestDelivery> | null>(null)
  const send = () => run(async () => setResult(await post(`/api/endpoints/${id}/test`)))
  useEffect(send, [])
  return (
    <TestDialog
      title={t.endpoints.testTitle}
      intro={t.endpoints.testText}
      {...{ isRunning, error, onSend: send, onClose }}
    >
      {result !== null && <TestResult result={result} />}
    </TestDialog>
  )
}

const headerLines = (headers: Array<[string, string]>) => headers.map(([name, value]) => `${name}: ${value}`)

function TestResult({ result: { request, response } }: { result: Json<TestDelivery> }) {
  const { t, number } = useLocalized()
  const { status, reason, durationMs, headers, body, isCut } = response
  const isAccepted = status !== null && status >= 200 && status < 300
  const sent = [`POST ${request.url}`, ...headerLines(Object.entries(request.headers)), '', request.body]
  const received = [...headerLines(headers as Array<[string, string]>), '', body].join('\n').trim()
  return (
    <>
      <h3>{t.endpoints.testResponse}</h3>
      <p class="response">
        <span class={`tag ${isAccepted ? 'good' : 'bad'}`}>{status ?? t.endpoints.noResponse}</span>{' '}
        {[fill(t.endpoints.milliseconds, { number: number(durationMs) }), reason].filter(Boolean).join(' · ')}
      </p>
      {received !== '' && <Payload text={received} isShort />}
      {isCut && <p class="muted small-text">{t.endpoints.testCut}</p>}
      <h3>{t.endpoints.testRequest}</h3>
      <Payload text={sent.join('\n')} />
    </>
  )
}

export function RotateSecret({ id, onClose }: { id: string; onClose: () => void }) {
  const { t } = useLocalized()
  const rotate = async () => (await post<{ secret: string }>(`/api/endpoints/${id}/rotate`)).secret
  const { rotate: title, rotated, rotateText: text, secret: label } = t.endpoints
  return <RotateDialog {...{ title, rotated, text, label, rotate, onClose }} />
}

/** Requires the name to be typed if deliveries are lost. */
export function RemoveEndpoint({ endpoint, onClose }: { endpoint: Endpoint; onClose: () => void }) {
  const { t, number } = useLocalized()
  const { isRunning, error, run } = useAction()
  const [typed, setTyped] = useState('')
  const [deleted, setDeleted] = useState(0)
  const { id, name, pending, failed } = endpoint
  const lost = pending + failed
  const expected = name.trim() || id
  const remove = async () => {
    for (let isLast = false; !isLast; ) {
      const batch = await post<{ deleted: number; isLast: boolean }>(`/api/endpoints/${id}/remove`)
      setDeleted((count) => count + batch.deleted)
      isLast = batch.isLast
    }
    navigate('/endpoints')
  }
  return (
    <Confirm
      title={t.endpoints.removeTitle}
      text={t.endpoints.removeText}
      submit={t.endpoints.removeSubmit}
      isRunning={isRunning}
      isAllowed={lost === 0 || [expected, id].includes(typed.trim())}
      onClose={onClose}
      onConfirm={() => run(remove)}
    >
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
      <p role="status">{deleted > 0 ? fill(t.endpoints.working, { count: number(deleted) }) : ''}</p>
      <ActionFailure error={error} />
    </Confirm>
  )
}
