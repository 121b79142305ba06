/** One client: when it was last used, its secret, its keys, and what operators do with it. */
import { perform, type Result, useRead } from '../operations.ts'
import { ActivityLink } from '../parts/activity.tsx'
import { Keys } from '../parts/client-keys.tsx'
import { CredentialStatus, Revoke } from '../parts/credentials.tsx'
import { DialogButton } from '../parts/dialog.tsx'
import { FormDialog } from '../parts/form.tsx'
import { Facts, Page, Panel } from '../parts/page.tsx'
import { SettingsActions } from '../parts/rotation.tsx'
import { Loaded } from '../parts/states.tsx'
import { Time } from '../parts/values.tsx'
import { Link, navigate } from '../router.tsx'
import { useRole } from '../session.ts'
import { fill, useLocalized } from '../texts.ts'

type Client = Result<'client.show'>['client']

export function ClientPage({ id }: { id: string }) {
  const { t } = useLocalized()
  const query = useRead('client.show', id)
  const isManager = useRole('manager')
  const client = query.data?.client
  const onChange = query.reload
  return (
    <Page
      title={client?.name ?? client?.clientId ?? t.clients.client}
      trail={<Link href="/clients">{t.nav.clients}</Link>}
      lead={
        client && (
          <>
            <CredentialStatus credential={client} /> <code>{client.clientId}</code>
          </>
        )
      }
      actions={client && isManager && <Actions {...{ client, onChange }} />}
    >
      <Loaded query={query}>
        {({ client }) => (
          <>
            <Access {...{ client, isManager, onChange }} />
            <Keys {...{ client, isManager }} />
            <ActivityLink kind="client" id={id} />
          </>
        )}
      </Loaded>
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
        <DialogButton class={danger} label={t.clients.revokeClient} onClosed={onChange}>
          {(close) => (
            <Revoke
              of="client"
              id={id}
              title={t.clients.revokeClient}
              text={t.clients.revokeClientText}
              onClose={close}
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
  const { id, status, isRotating } = client
  const actions = (
    <SettingsActions
      of="client"
      id={id}
      isRotating={isRotating}
      canRotate={status === 'active'}
      onChange={onChange}
    />
  )
  return (
    <Panel title={t.clients.access} actions={isManager && actions}>
      <Facts
        items={[
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
  const { data } = useRead('client.removal', id)
  const remove = async () => {
    await perform('client.remove', id)
    navigate('/clients')
  }
  return (
    <FormDialog
      title={t.clients.removeClient}
      submit={t.clients.removeClient}
      isComplete={data !== undefined}
      onClose={onClose}
      onSubmit={remove}
      isDangerous
    >
      <p>{fill(t.clients.removeClientText, { keys: String(data?.apiKeys ?? '…') })}</p>
    </FormDialog>
  )
}
