/** The setup of an account: its webhook URL, and the steps, each of which is done only if something has proven it. */
import { useState } from 'preact/hooks'
import { useRole } from '../session.ts'
import { fill, useLocalized } from '../texts.ts'
import { ImportFollowers, PointWebhook } from './account-actions.tsx'
import type { AccountResponse } from './account-response.ts'
import { Icon } from './icons.tsx'
import { Copyable } from './values.tsx'

/** One line while the account works. It neither opens nor closes under the operator who works in it. */
export function SetUp({
  account,
  facts,
  verification,
  publicUrl,
  webhookPath,
  onChange,
}: AccountResponse & { onChange: () => void }) {
  const { t } = useLocalized()
  const canManage = useRole('manager')
  const { steps: texts } = t.account
  const isOk = (name: string) => verification?.checks.find((check) => check.name === name)?.ok === true
  const steps: Array<[text: string, isDone: boolean]> = [
    [texts.credentials, isOk('access_token')],
    [texts.endpoint, isOk('webhook_endpoint')],
    [texts.active, isOk('webhook_active')],
    [texts.delivered, facts.lastDeliveryAt !== null && facts.unprovenSecretAt === null],
    [texts.redelivery, isOk('redelivery')],
  ]
  const done = steps.filter(([, isDone]) => isDone).length
  const [isOpen] = useState(done < steps.length - 1)
  const { id } = account
  return (
    <section class="panel" aria-label={t.account.setup}>
      <details open={isOpen}>
        <summary>
          <h2>{t.account.setup}</h2>{' '}
          {done === steps.length ? (
            <span class="tag good">{t.account.done}</span>
          ) : (
            <span class="tag">
              {fill(t.account.stepsDone, { done: String(done), all: String(steps.length) })}
            </span>
          )}
        </summary>
        {canManage && (
          <div class="actions">
            <PointWebhook id={id} onDone={onChange} />
            <ImportFollowers id={id} />
          </div>
        )}
        <h3>{publicUrl === null ? t.account.noPublicUrlTitle : t.account.webhookUrl}</h3>
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
      </details>
    </section>
  )
}
