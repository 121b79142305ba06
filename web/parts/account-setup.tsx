/** The setup of an account: its webhook URL, the steps with their completion, and its verification. */
import { useState } from 'preact/hooks'
import { describeCheck } from '../../src/watch/problem-texts.ts'
import { useRole } from '../session.ts'
import { useLocalized } from '../texts.ts'
import { ImportFollowers, PointWebhook, VerifyAccount } from './account-actions.tsx'
import type { AccountResponse } from './account-response.ts'
import { Icon } from './icons.tsx'
import { Copyable } from './values.tsx'

/** One line while every step is done. It neither opens nor closes under the operator who works in it. */
export function SetUp({
  account,
  facts,
  verification,
  publicUrl,
  webhookPath,
  onChange,
}: AccountResponse & { onChange: () => void }) {
  const { t, relative } = useLocalized()
  const canManage = useRole('manager')
  const steps = useSteps({ account, facts, verification })
  const isDone = steps.every(([, isStepDone]) => isStepDone)
  const [isOpen] = useState(!isDone)
  const { id } = account
  return (
    <section class="panel" aria-label={t.account.setup}>
      <details open={isOpen}>
        <summary>
          <h2>{t.account.setup}</h2> {isDone && <span class="tag good">{t.account.done}</span>}
        </summary>
        {canManage && (
          <div class="actions">
            <VerifyAccount id={id} testWebhook={false} onDone={onChange} />
            <VerifyAccount id={id} testWebhook onDone={onChange} />
            <PointWebhook id={id} onDone={onChange} />
            <ImportFollowers id={id} />
          </div>
        )}
        <h3>{t.account.webhookUrl}</h3>
        <Copyable text={`${publicUrl ?? ''}${webhookPath}`} label={t.account.webhookUrl} />
        <p class="muted small-text">{publicUrl === null ? t.account.noPublicUrl : t.account.webhookHint}</p>
        <p class="muted small-text">{t.account.switches}</p>
        <p class="muted small-text">{t.account.replies}</p>
        <ol class="checks">
          {steps.map(([text, isStepDone]) => (
            <li key={text} class={isStepDone ? 'is-done' : 'is-open'}>
              <Icon name={isStepDone ? 'check' : 'dot'} />
              <span>{text}</span>
              <span class="visually-hidden">{isStepDone ? t.account.done : t.account.open}</span>
            </li>
          ))}
        </ol>
        {verification !== null && (
          <details>
            <summary>
              {t.account.checks} · {relative(verification.checkedAt)}
            </summary>
            <ul class="checks">
              {verification.checks.map((check) => (
                <li
                  key={check.name}
                  class={check.ok ? 'is-done' : check.ok === null ? 'is-open' : 'is-failed'}
                >
                  <Icon name={check.ok ? 'check' : check.ok === null ? 'dot' : 'cross'} />
                  <span>
                    <b>{t.checks?.names[check.name] ?? check.name}</b> {describeCheck(t, check)}
                  </span>
                </li>
              ))}
            </ul>
          </details>
        )}
      </details>
    </section>
  )
}

function useSteps({
  account,
  facts,
  verification,
}: Pick<AccountResponse, 'account' | 'facts' | 'verification'>): Array<[text: string, isDone: boolean]> {
  const { steps } = useLocalized().t.account
  const isOk = (name: string) => verification?.checks.find((check) => check.name === name)?.ok === true
  return [
    [steps.secret, account.hasChannelSecret],
    [steps.token, account.hasChannelAccessToken || (account.channelId !== null && account.hasChannelSecret)],
    [steps.token_ok, isOk('access_token')],
    [steps.endpoint, isOk('webhook_endpoint')],
    [steps.active, isOk('webhook_active')],
    [steps.delivered, facts.lastDeliveryAt !== null && facts.unprovenSecretAt === null],
  ]
}
