/** What clients and keys have in common: status, expiry and revocation. */
import { useState } from 'preact/hooks'
import { serverNowMs } from '../clock.ts'
import { perform } from '../operations.ts'
import { fill, stateIn, useLocalized } from '../texts.ts'
import { FormDialog, TextField } from './form.tsx'
import { toField, toIso } from './time-range.tsx'

/** Long enough for the owner of a program to plan the change. */
const EXPIRES_SOON_MS = 30 * 86_400_000

interface Credential {
  status: string
  isExpired: boolean
  expiresAt: string | null
}

export function CredentialStatus({ credential }: { credential: Credential }) {
  const { t, relative } = useLocalized()
  const { status, isExpired, expiresAt } = credential
  if (status === 'active' && isExpired) return <span class="tag bad">{t.clients.expired}</span>
  const isSoon = expiresAt !== null && Date.parse(expiresAt) - serverNowMs() < EXPIRES_SOON_MS
  return (
    <>
      <span class={`tag ${status === 'active' ? 'good' : 'bad'}`}>{stateIn(t.clients.states, status)}</span>
      {status === 'active' && isSoon && (
        <>
          {' '}
          <span class="tag warning">{fill(t.clients.expiresSoon, { when: relative(expiresAt) })}</span>
        </>
      )}
    </>
  )
}

/** @param value as the field has it; empty: never */
export function ExpiryField({ value, onChange }: { value: string; onChange: (value: string) => void }) {
  const { t } = useLocalized()
  return (
    <TextField
      name="expiresAt"
      type="datetime-local"
      label={t.clients.expires}
      hint={t.clients.expiresHint}
      value={value}
      onChange={onChange}
    />
  )
}

export function EditExpiry({
  of,
  id,
  title,
  expiresAt,
  onClose,
  onDone,
}: {
  of: 'client' | 'key'
  id: string
  title: string
  expiresAt: string | null
  onClose: () => void
  onDone: () => void
}) {
  const { t } = useLocalized()
  const [value, setValue] = useState(() => (expiresAt === null ? '' : toField(Date.parse(expiresAt))))
  const save = async () => {
    await perform(`${of}.update`, id, { expiresAt: toIso(value) })
    onDone()
  }
  return (
    <FormDialog title={title} onClose={onClose} submit={t.clients.expirySubmit} onSubmit={save}>
      <p>{t.clients.expiryText}</p>
      <ExpiryField value={value} onChange={setValue} />
    </FormDialog>
  )
}

export function Revoke({
  of,
  id,
  text,
  ...dialog
}: {
  of: 'client' | 'key'
  id: string
  title: string
  text: string
  onClose: () => void
}) {
  const { t } = useLocalized()
  return (
    <FormDialog
      {...dialog}
      submit={t.clients.revoke}
      onSubmit={() => perform(`${of}.revoke`, id).then(dialog.onClose)}
      isDangerous
    >
      <p>{text}</p>
    </FormDialog>
  )
}
