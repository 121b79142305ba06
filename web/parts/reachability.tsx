/** Whether LINE can reach this service, as far as the service itself can see. */
import { useState } from 'preact/hooks'
import type { Reachability } from '../../src/watch/reachability.ts'
import { type ApiError, get } from '../api.ts'
import { useAction } from '../hooks.ts'
import { useRole } from '../session.ts'
import { fill, useLocalized } from '../texts.ts'
import { VerifyAccount } from './account-actions.tsx'
import type { AccountResponse } from './account-response.ts'
import { Panel } from './page.tsx'
import { ActionFailure } from './states.tsx'

/** Problems that an unreachable PUBLIC_URL may cause. */
const CAUSED: string[] = ['webhook_test_failed', 'never_delivered', 'unusually_quiet', 'silent_for_days']
export const mayBeUnreachable = (reason: string): boolean => CAUSED.includes(reason)

const CLASSES = { ok: 'good', warning: 'warning', error: 'bad' } as const

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

export function ReachabilityOutcome({ result }: { result: Reachability }) {
  const { t } = useLocalized()
  const { message, fix } = t.reachability.outcomes[result.code]
  return (
    <p role="status" class={`notice ${CLASSES[result.severity]}`}>
      <b>{fill(message, { detail: result.detail })}</b> {fix}
    </p>
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
          <ReachabilityOutcome result={result} />
          <p class="muted small-text">{relative(result.checkedAt)}</p>
        </>
      )}
      <p class="muted small-text">{t.reachability.limits}</p>
      {canManage && canCallLine && result && <VerifyAccount id={id} testWebhook onDone={onVerified} />}
    </Panel>
  )
}
