/** What clients and keys have in common: status and revocation. */
import { perform } from '../operations.ts'
import { stateIn, useLocalized } from '../texts.ts'
import { FormDialog } from './form.tsx'

export function CredentialStatus({ credential: { status } }: { credential: { status: string } }) {
  const { t } = useLocalized()
  return (
    <span class={`tag ${status === 'active' ? 'good' : 'bad'}`}>{stateIn(t.clients.states, status)}</span>
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
