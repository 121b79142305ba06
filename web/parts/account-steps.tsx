/** What to do after an account was added: addresses to paste, and what this service does by itself. */
import type { ComponentChildren } from 'preact'
import { useState } from 'preact/hooks'
import { Link } from '../router.tsx'
import { fill } from '../texts/languages.ts'
import { useLocalized } from '../texts.ts'
import { ImportFollowers, PointWebhook, VerifyAccount } from './account-actions.tsx'
import type { Values } from './account-fields.tsx'
import { Page, Panel } from './page.tsx'
import { Copyable } from './values.tsx'

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
      <Panel title={next.chat}>
        <p>{next.callback}</p>
        <p class="notice warning">{t.manage.addressOnce}</p>
        <Copyable text={callbackUrl} label={t.manage.callbackUrl} />
      </Panel>
      <Panel title={next.web}>
        <p>{next.tracking}</p>
        <Copyable text={trackingKey} label={t.account.trackingKey} />
      </Panel>
    </Page>
  )
}
