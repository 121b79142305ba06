/** When a client expires and was last used, and the rotation of its secret. */
import { useState } from 'preact/hooks'
import type { ClientDetails } from '../../src/operator/clients.ts'
import { type Json, post } from '../api.ts'
import { useLocalized } from '../texts.ts'
import { EditExpiry } from './credentials.tsx'
import { Facts, Panel } from './page.tsx'
import { EndRotation, RotateDialog } from './rotate-dialog.tsx'
import { Time } from './values.tsx'

type Client = Json<ClientDetails>

export function Access({
  client,
  isManager,
  onChange,
}: {
  client: Client
  isManager: boolean
  onChange: () => void
}) {
  const { t } = useLocalized()
  return (
    <Panel title={t.clients.access} actions={isManager && <AccessActions {...{ client, onChange }} />}>
      <Facts
        items={[
          [t.clients.expires, <Time key="e" at={client.expiresAt} />],
          [t.clients.lastUsed, <Time key="l" at={client.lastUsedAt} />],
          [t.clients.clientSecret, client.isRotating ? t.clients.rotating : t.clients.oneSecret],
          [t.common.created, <Time key="c" at={client.createdAt} />],
        ]}
      />
    </Panel>
  )
}

function AccessActions({ client, onChange }: { client: Client; onChange: () => void }) {
  const { t } = useLocalized()
  const { id, status, expiresAt, isRotating } = client
  const [open, setOpen] = useState<'expiry' | 'rotate' | 'finish' | 'discard' | null>(null)
  const [message, setMessage] = useState('')
  const finish = (text: string) => {
    setOpen(null)
    setMessage(text)
    onChange()
  }
  const close = () => finish('')
  return (
    <>
      <span role="status" class="muted small-text">
        {message}
      </span>
      {(status === 'active' || isRotating) && (
        <button type="button" onClick={() => setOpen(isRotating ? 'finish' : 'rotate')}>
          {isRotating ? t.clients.finish : t.clients.rotate}
        </button>
      )}
      {isRotating && (
        <button type="button" onClick={() => setOpen('discard')}>
          {t.clients.discard}
        </button>
      )}
      <button type="button" onClick={() => setOpen('expiry')}>
        {t.clients.changeExpiry}
      </button>
      {open === 'expiry' && (
        <EditExpiry
          path={`/api/clients/${id}`}
          title={t.clients.changeExpiry}
          expiresAt={expiresAt}
          onClose={close}
          onDone={() => finish(t.clients.expirySaved)}
        />
      )}
      {open === 'rotate' && <RotateClient id={id} onClose={close} />}
      {open === 'finish' && (
        <EndRotation
          path={`/api/clients/${id}/finish-rotation`}
          title={t.clients.finish}
          text={t.clients.finishText}
          onClose={close}
          onDone={() => finish(t.clients.finished)}
        />
      )}
      {open === 'discard' && (
        <EndRotation
          path={`/api/clients/${id}/discard-rotation`}
          title={t.clients.discard}
          text={t.clients.discardText}
          onClose={close}
          onDone={() => finish(t.clients.discarded)}
        />
      )}
    </>
  )
}

function RotateClient({ id, onClose }: { id: string; onClose: () => void }) {
  const { t } = useLocalized()
  const rotate = async () => (await post<{ clientSecret: string }>(`/api/clients/${id}/rotate`)).clientSecret
  const { rotate: title, rotated, rotateText: text, clientSecret: label } = t.clients
  return <RotateDialog {...{ title, rotated, text, label, rotate, onClose }} />
}
