/** The setup of an account: its webhook URL, the steps with their completion, and its verification. */

import type { ComponentChildren } from 'preact'
import { useState } from 'preact/hooks'
import { describeCheck } from '../../src/watch/problem-texts.ts'
import { Link } from '../router.tsx'
import { useRole } from '../session.ts'
import { fill, useLocalized } from '../texts.ts'
import { ImportFollowers, PointWebhook, VerifyAccount } from './account-actions.tsx'
import type { Values } from './account-fields.tsx'
import type { AccountResponse } from './account-response.ts'
import { Icon } from './icons.tsx'
import { Page, Panel } from './page.tsx'
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

/** The callback URL is like a secret: only this response has it. */
export interface AddedAccount {
  id: string
  webhookUrl: string
  callbackUrl: string
  trackingKey: string
  /** LINE did not respond */
  isUnproven?: boolean
}

export function NextSteps({
  account: { id, webhookUrl, callbackUrl, trackingKey, isUnproven = false },
  values,
  trail,
}: {
  account: AddedAccount
  values: Values
  trail: ComponentChildren
}) {
  const { t } = useLocalized()
  const [isVerified, setVerified] = useState<boolean | null>(null)
  const canCallLine = Boolean(values.channelAccessToken || (values.channelId && values.channelSecret))
  const { next } = t.manage
  return (
    <Page
      title={fill(next.title, { name: values.name ?? '' })}
      trail={trail}
      lead={next.lead}
      actions={
        <Link class="button" href={`/accounts/${id}`}>
          {next.open}
        </Link>
      }
    >
      {isUnproven && <p class="notice warning">{t.manage.unproven}</p>}
      <Panel title={next.line}>
        <ol class="steps">
          <li>
            <p>{next.webhook}</p>
            <Copyable text={webhookUrl} label={t.account.webhookUrl} />
            {canCallLine && <PointWebhook id={id} onDone={() => undefined} />}
          </li>
          <li>{next.switches}</li>
          <li>{next.replies}</li>
          <li>
            <p>{next.verify}</p>
            <VerifyAccount id={id} testWebhook onDone={setVerified} />
            {isVerified !== null && (
              <p class={`notice ${isVerified ? 'good' : 'warning'}`} role="status">
                {isVerified ? next.verified : next.notVerified}
              </p>
            )}
          </li>
          <li>
            <p>{next.followers}</p>
            <ImportFollowers id={id} />
          </li>
        </ol>
      </Panel>
      <details class="panel">
        <summary>{t.manage.chatAndTracking}</summary>
        <h3>{next.chat}</h3>
        <p>{next.callback}</p>
        <p class="notice warning">{t.manage.addressOnce}</p>
        <Copyable text={callbackUrl} label={t.manage.callbackUrl} />
        <h3>{next.web}</h3>
        <p>{next.tracking}</p>
        <Copyable text={trackingKey} label={t.account.trackingKey} />
      </details>
    </Page>
  )
}
