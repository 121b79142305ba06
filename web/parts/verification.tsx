/** What LINE and the deliveries said about an account when it was verified last, and the buttons that ask again. */
import { useState } from 'preact/hooks'
import { describeCheck } from '../../src/watch/problem-texts.ts'
import { perform } from '../operations.ts'
import { useRole } from '../session.ts'
import { fill, useLocalized } from '../texts.ts'
import { VerifyAccount } from './account-actions.tsx'
import type { AccountResponse } from './account-response.ts'
import { CloseFooter, Dialog, DialogButton } from './dialog.tsx'
import { FormDialog } from './form.tsx'
import { Icon } from './icons.tsx'
import { Panel } from './page.tsx'
import { Time } from './values.tsx'

/** The messages of checks have times in UTC. */
const UTC = /\d{4}-\d\d-\d\dT[\d:.]+Z/g

const DONE = ['done', 'check'] as const
const OPEN = ['open', 'dot'] as const
const FAILED = ['failed', 'cross'] as const

export function Verification({
  account: { id },
  verification,
  onChange,
}: Pick<AccountResponse, 'account' | 'verification'> & { onChange: () => void }) {
  const { t, relative, dateTime } = useLocalized()
  const canManage = useRole('manager')
  return (
    <Panel
      title={t.account.verification}
      actions={
        canManage && (
          <>
            <VerifyAccount id={id} testWebhook={false} onDone={onChange} />
            <VerifyAccount id={id} testWebhook onDone={onChange} />
            <DialogButton label={t.account.proveRedelivery} onClosed={onChange}>
              {(close) => <ProveRedelivery id={id} onClose={close} />}
            </DialogButton>
          </>
        )
      }
    >
      <p class="muted">
        {verification
          ? fill(t.account.verifiedAt, { time: relative(verification.checkedAt) })
          : t.account.neverVerified}
      </p>
      <ul class="checks">
        {verification?.checks.map((check) => {
          const [state, icon] = check.ok ? DONE : check.ok === null ? OPEN : FAILED
          return (
            <li key={check.name} class={`is-${state}`}>
              <Icon name={icon} />
              <span>
                <b>{t.checkNames[check.name] ?? check.name}</b>{' '}
                {describeCheck(t, check).replaceAll(UTC, dateTime)}{' '}
                {check.seenAt && (
                  <span class="muted">
                    <Time at={check.seenAt} />
                  </span>
                )}
              </span>
            </li>
          )
        })}
      </ul>
    </Panel>
  )
}

/** LINE cannot be asked whether it repeats deliveries. Only a delivery that was refused shows it. */
function ProveRedelivery({ id, onClose }: { id: string; onClose: () => void }) {
  const { t } = useLocalized()
  const [isArmed, setArmed] = useState(false)
  const arm = async () => {
    await perform('account.verify', id, { testWebhook: false, proveRedelivery: true })
    setArmed(true)
  }
  if (isArmed) {
    return (
      <Dialog title={t.account.proveRedelivery} onClose={onClose}>
        <p class="notice good" role="status">
          {t.account.proofArmed}
        </p>
        <CloseFooter onClose={onClose} />
      </Dialog>
    )
  }
  return (
    <FormDialog
      title={t.account.proveRedelivery}
      submit={t.account.proveSubmit}
      onSubmit={arm}
      onClose={onClose}
    >
      <p>{t.account.proveText}</p>
    </FormDialog>
  )
}
