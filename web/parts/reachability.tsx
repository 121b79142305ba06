/** Whether LINE can reach this service, as far as the service itself can see. */
import { useState } from 'preact/hooks'
import type { Reachability } from '../../src/operator/reachability.ts'
import { type ApiError, get } from '../api.ts'
import { useAction } from '../hooks.ts'
import { useRole } from '../session.ts'
import { useLocalized } from '../texts.ts'
import { VerifyAccount } from './account-actions.tsx'
import type { AccountResponse } from './account-response.ts'
import { Icon } from './icons.tsx'
import { Panel } from './page.tsx'
import { ActionFailure } from './states.tsx'

/** Problems that an unreachable PUBLIC_URL may cause. */
const CAUSED: string[] = ['webhook_test_failed', 'never_delivered', 'unusually_quiet', 'silent_for_days']
export const mayBeUnreachable = (reason: string): boolean => CAUSED.includes(reason)

const ICONS = { ok: 'check', warning: 'events', error: 'cross' } as const

export interface Examination {
  result: Reachability | null
  isRunning: boolean
  error: ApiError | undefined
  start: () => void
}

/** Shared by the parts of a page, so that they show the same result. */
export function useExamination(): Examination {
  const { isRunning, error, run } = useAction()
  const [result, setResult] = useState<Reachability | null>(null)
  const start = () => run(async () => setResult(await get<Reachability>('/api/reachability')))
  return { result, isRunning, error, start }
}

export function ExamineButton({ examination: { isRunning, error, start } }: { examination: Examination }) {
  const { t } = useLocalized()
  return (
    <>
      <button type="button" disabled={isRunning} onClick={start}>
        {isRunning ? t.reachability.checking : t.reachability.check}
      </button>
      <ActionFailure error={error} />
    </>
  )
}

export function ReachabilityFindings({ result }: { result: Reachability }) {
  const { t } = useLocalized()
  return (
    <div role="status">
      <ul class="checks">
        {result.findings.map(({ code, severity, detail, ...english }) => {
          // After an upgrade, the service may send a code that an open page does not have yet.
          const [message, fix] = Object.hasOwn(t.reachability.findings, code)
            ? t.reachability.findings[code](detail)
            : [english.message, english.fix]
          return (
            <li key={code} class={severity === 'ok' ? 'is-done' : 'is-open'}>
              <Icon name={ICONS[severity]} />
              <span>
                <b>{message}</b> {fix}
              </span>
            </li>
          )
        })}
      </ul>
    </div>
  )
}

export function ReachabilityPanel({
  examination,
  account,
  onVerified,
}: {
  examination: Examination
  account: AccountResponse['account']
  onVerified: () => void
}) {
  const { t, relative } = useLocalized()
  const canManage = useRole('manager')
  const { id, channelId, hasChannelSecret, hasChannelAccessToken } = account
  const canCallLine = hasChannelAccessToken || (channelId !== null && hasChannelSecret)
  const { result } = examination
  return (
    <Panel title={t.reachability.title} actions={<ExamineButton examination={examination} />}>
      {result && (
        <>
          <ReachabilityFindings result={result} />
          <p class="muted small-text">{relative(result.checkedAt)}</p>
        </>
      )}
      <p class="muted small-text">{t.reachability.limits}</p>
      {canManage && canCallLine && result && <VerifyAccount id={id} testWebhook onDone={onVerified} />}
    </Panel>
  )
}
