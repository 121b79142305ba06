/** One client: when it expires and was last used, its secret, its keys, and what operators do with it. */
import { useState } from 'preact/hooks'
import type { ClientDetails } from '../../src/accounts/clients.ts'
import type { ClientContents } from '../../src/operations/clients.ts'
import { type Json, post } from '../api.ts'
import { useQuery } from '../hooks.ts'
import { ActivityPanel } from '../parts/activity.tsx'
import { Keys } from '../parts/client-keys.tsx'
import { CredentialStatus, EditExpiry, Revoke } from '../parts/credentials.tsx'
import { Confirm, DialogButton } from '../parts/dialog.tsx'
import { Facts, Page, Panel } from '../parts/page.tsx'
import { SettingsActions } from '../parts/rotation.tsx'
import { Loaded } from '../parts/states.tsx'
import { Time } from '../parts/values.tsx'
import { Link, navigate } from '../router.tsx'
import { useRole } from '../session.ts'
import { fill, useLocalized } from '../texts.ts'

type Client = Json<ClientDetails>

export function ClientPage({ id }: { id: string }) {
  const { t } = useLocalized()
  const query = useQuery<{ client: Client }>(`/api/clients/${id}`)
  const [round, setRound] = useState(0)
  const isManager = useRole('manager')
  const trail = <Link href="/clients">{t.nav.clients}</Link>
  const client = query.data?.client
  if (client === undefined) {
    return (
      <Page title={`${t.clients.client} ${id}`} trail={trail}>
        <Loaded query={query} />
      </Page>
    )
  }
  const onChange = () => {
    query.reload()
    setRound((count) => count + 1)
  }
  return (
    <Page
      title={client.name ?? `${t.clients.client} ${id}`}
      trail={trail}
      lead={
        <>
          <CredentialStatus credential={client} /> <code>{client.clientId}</code>
        </>
      }
      actions={isManager && <Actions client={client} onChange={onChange} />}
    >
      <Access client={client} isManager={isManager} onChange={onChange} />
      <Keys client={client} isManager={isManager} />
      <ActivityPanel key={round} kind="client" id={id} />
    </Page>
  )
}

interface ClientProps {
  client: Client
  onChange: () => void
}

function Actions({ client: { id, status }, onChange }: ClientProps) {
  const { t } = useLocalized()
  const danger = 'danger quiet-danger'
  return (
    <>
      {status === 'active' && (
        <DialogButton class={danger} label={t.clients.revokeClient}>
          {(close) => (
            <Revoke
              path={`/api/clients/${id}/revoke`}
              title={t.clients.revokeClient}
              text={t.clients.revokeClientText}
              onClose={close}
              onDone={() => {
                close()
                onChange()
              }}
            />
          )}
        </DialogButton>
      )}
      <DialogButton class={danger} label={t.clients.removeClient}>
        {(close) => <RemoveClient id={id} onClose={close} />}
      </DialogButton>
    </>
  )
}

function Access({ client, isManager, onChange }: ClientProps & { isManager: boolean }) {
  const { t } = useLocalized()
  const { id, status, expiresAt, isRotating } = client
  const path = `/api/clients/${id}`
  const title = t.clients.changeExpiry
  const actions = (
    <SettingsActions
      path={path}
      of="clients"
      secretName="clientSecret"
      isRotating={isRotating}
      canRotate={status === 'active'}
      changeLabel={title}
      change={(onClose, onDone) => (
        <EditExpiry path={path} title={title} expiresAt={expiresAt} onClose={onClose} onDone={onDone} />
      )}
      onChange={onChange}
    />
  )
  return (
    <Panel title={t.clients.access} actions={isManager && actions}>
      <Facts
        items={[
          [t.clients.expires, <Time key="e" at={expiresAt} />],
          [t.clients.lastUsed, <Time key="l" at={client.lastUsedAt} />],
          [t.clients.clientSecret, isRotating ? t.clients.rotating : t.clients.oneSecret],
          [t.common.created, <Time key="c" at={client.createdAt} />],
        ]}
      />
    </Panel>
  )
}

/** Says first how many keys stop working. */
function RemoveClient({ id, onClose }: { id: string; onClose: () => void }) {
  const { t } = useLocalized()
  const { data } = useQuery<Json<ClientContents>>(`/api/clients/${id}/removal`)
  const remove = async () => {
    await post(`/api/clients/${id}/remove`)
    navigate('/clients')
  }
  return (
    <Confirm
      title={t.clients.removeClient}
      text={fill(t.clients.removeClientText, { keys: String(data?.apiKeys ?? '…') })}
      submit={t.clients.removeClient}
      isAllowed={data !== undefined}
      onClose={onClose}
      onConfirm={remove}
    />
  )
}
