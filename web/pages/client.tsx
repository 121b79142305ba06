import { useState } from 'preact/hooks'
import type { ClientDetails } from '../../src/operator/clients.ts'
import type { ClientContents } from '../../src/operator/remove.ts'
import { type Json, post } from '../api.ts'
import { useAction, useQuery } from '../hooks.ts'
import { ActivityPanel } from '../parts/activity.tsx'
import { Access } from '../parts/client-access.tsx'
import { Keys } from '../parts/client-keys.tsx'
import { CredentialStatus, Revoke } from '../parts/credentials.tsx'
import { Confirm } from '../parts/dialog.tsx'
import { Page } from '../parts/page.tsx'
import { ActionFailure, Failure, Loading } from '../parts/states.tsx'
import { Link, navigate } from '../router.tsx'
import { useRole } from '../session.ts'
import { fill } from '../texts/languages.ts'
import { useLocalized } from '../texts.ts'

type Client = Json<ClientDetails>

export function ClientPage({ id }: { id: string }) {
  const { t } = useLocalized()
  const { data, error, reload } = useQuery<{ client: Client }>(`/api/clients/${id}`)
  const [isRevoking, setRevoking] = useState(false)
  const [isRemoving, setRemoving] = useState(false)
  const [round, setRound] = useState(0)
  const isManager = useRole('manager')
  const trail = <Link href="/clients">{t.nav.clients}</Link>
  const client = data?.client
  if (client === undefined) {
    return (
      <Page title={`${t.clients.client} ${id}`} trail={trail}>
        {error ? <Failure error={error} retry={reload} /> : <Loading />}
      </Page>
    )
  }
  const onChange = () => {
    reload()
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
      actions={
        isManager && (
          <>
            {client.status === 'active' && (
              <button type="button" class="danger quiet-danger" onClick={() => setRevoking(true)}>
                {t.clients.revokeClient}
              </button>
            )}
            <button type="button" class="danger quiet-danger" onClick={() => setRemoving(true)}>
              {t.clients.removeClient}
            </button>
          </>
        )
      }
    >
      <Access client={client} isManager={isManager} onChange={onChange} />
      <Keys client={client} isManager={isManager} />
      <ActivityPanel key={round} kind="client" id={id} />
      {isRemoving && <RemoveClient id={id} onClose={() => setRemoving(false)} />}
      {isRevoking && (
        <Revoke
          path={`/api/clients/${id}/revoke`}
          title={t.clients.revokeClient}
          text={t.clients.revokeClientText}
          onClose={() => setRevoking(false)}
          onDone={() => {
            setRevoking(false)
            onChange()
          }}
        />
      )}
    </Page>
  )
}

/** Says first how many keys stop working. */
function RemoveClient({ id, onClose }: { id: string; onClose: () => void }) {
  const { t } = useLocalized()
  const { isRunning, error, run } = useAction()
  const { data } = useQuery<Json<ClientContents>>(`/api/clients/${id}/removal`)
  const remove = () =>
    run(async () => {
      await post(`/api/clients/${id}/remove`)
      navigate('/clients')
    })
  return (
    <Confirm
      title={t.clients.removeClient}
      text={fill(t.clients.removeClientText, { keys: String(data?.apiKeys ?? '…') })}
      submit={t.clients.removeClient}
      isRunning={isRunning}
      isAllowed={data !== undefined}
      onClose={onClose}
      onConfirm={remove}
    >
      <ActionFailure error={error} />
    </Confirm>
  )
}
