import { useCallback, useState } from 'preact/hooks'
import type { AddedKey } from '../../src/accounts/provisioning.ts'
import type { ClientDetails, KeyDetails } from '../../src/operator/clients.ts'
import type { ClientContents } from '../../src/operator/remove.ts'
import { get, type Json, post, queryOf } from '../api.ts'
import { useAction, useList, useQuery } from '../hooks.ts'
import { ActivityPanel } from '../parts/activity.tsx'
import { AccountChooser } from '../parts/chooser.tsx'
import { Confirm, Dialog } from '../parts/dialog.tsx'
import { Page, Panel } from '../parts/page.tsx'
import { ActionFailure, Failure, ListView, Loading } from '../parts/states.tsx'
import { Table } from '../parts/table.tsx'
import { Copyable, Time } from '../parts/values.tsx'
import { Link, navigate } from '../router.tsx'
import { useRole } from '../session.ts'
import { useLocalized } from '../texts.ts'
import { ClientStatus } from './clients.tsx'

type Client = Json<ClientDetails>
type Key = Json<KeyDetails>

export function ClientPage({ id }: { id: string }) {
  const { t } = useLocalized()
  const { data, error, reload } = useQuery<{ client: Client }>(`/api/clients/${id}`)
  const [isRevoking, setRevoking] = useState(false)
  const [isRemoving, setRemoving] = useState(false)
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
  return (
    <Page
      title={client.name ?? `${t.clients.client} ${id}`}
      trail={trail}
      lead={
        <>
          <ClientStatus status={client.status} /> <code>{client.clientId}</code>
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
      <Keys client={client} isManager={isManager} />
      <ActivityPanel key={client.status} kind="client" id={id} />
      {isRemoving && <RemoveClient id={id} onClose={() => setRemoving(false)} />}
      {isRevoking && (
        <Revoke
          path={`/api/clients/${id}/revoke`}
          title={t.clients.revokeClient}
          text={t.clients.revokeClientText}
          onClose={() => setRevoking(false)}
          onDone={() => {
            setRevoking(false)
            reload()
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
      text={t.clients.removeClientText(String(data?.apiKeys ?? '…'))}
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

function Keys({ client: { id, status }, isManager }: { client: Client; isManager: boolean }) {
  const { t } = useLocalized()
  const [isAdding, setAdding] = useState(false)
  const [revoking, setRevoking] = useState<Key | null>(null)
  const load = useCallback(
    (after: string | null, signal: AbortSignal) =>
      get<{ keys: Key[]; next: string | null }>(`/api/clients/${id}/keys${queryOf({ after })}`, signal).then(
        ({ keys, next }) => ({ items: keys, next }),
      ),
    [id],
  )
  const list = useList(load)
  const finish = () => {
    setAdding(false)
    setRevoking(null)
    list.reload()
  }
  return (
    <Panel
      title={t.clients.keys}
      actions={
        status === 'active' &&
        isManager && (
          <button type="button" class="primary" onClick={() => setAdding(true)}>
            {t.clients.addKey}
          </button>
        )
      }
    >
      <ListView list={list} empty={<p class="muted">{t.clients.noKeys}</p>}>
        {(keys) => <KeyTable keys={keys} onRevoke={isManager ? setRevoking : null} />}
      </ListView>
      {isAdding && <AddKey client={id} onClose={finish} />}
      {revoking && (
        <Revoke
          path={`/api/keys/${revoking.id}/revoke`}
          title={t.clients.revokeKey(revoking.id)}
          text={t.clients.revokeKeyText}
          onClose={() => setRevoking(null)}
          onDone={finish}
        />
      )}
    </Panel>
  )
}

function KeyTable({ keys, onRevoke }: { keys: Key[]; onRevoke: ((key: Key) => void) | null }) {
  const { t } = useLocalized()
  return (
    <Table
      columns={[
        t.clients.key,
        t.common.account,
        t.common.status,
        { label: t.common.created, class: 'medium-only' },
        { label: t.common.actions, isHidden: true },
      ]}
    >
      {keys.map((key) => (
        <tr key={key.id}>
          <th scope="row">{key.id}</th>
          <td>
            {key.accountName === null ? (
              <span class="muted">{`${t.clients.unknownAccount} ${key.accountId}`}</span>
            ) : (
              <Link href={`/accounts/${key.accountId}`}>{key.accountName}</Link>
            )}
          </td>
          <td>
            <ClientStatus status={key.status} />
          </td>
          <td class="medium-only">
            <Time at={key.createdAt} />
          </td>
          <td class="numeric">
            {key.status === 'active' && onRevoke && (
              <button
                type="button"
                class="small"
                aria-label={t.clients.revokeKey(key.id)}
                onClick={() => onRevoke(key)}
              >
                {t.clients.revoke}
              </button>
            )}
          </td>
        </tr>
      ))}
    </Table>
  )
}

function Revoke({
  path,
  title,
  text,
  onClose,
  onDone,
}: {
  path: string
  title: string
  text: string
  onClose: () => void
  onDone: () => void
}) {
  const { t } = useLocalized()
  const { isRunning, error, run } = useAction()
  const revoke = () =>
    run(async () => {
      await post(path)
      onDone()
    })
  return (
    <Confirm {...{ title, text, isRunning, onClose }} submit={t.clients.revoke} onConfirm={revoke}>
      <ActionFailure error={error} />
    </Confirm>
  )
}

function AddKey({ client, onClose }: { client: string; onClose: () => void }) {
  const { t } = useLocalized()
  const { isRunning, error, run } = useAction()
  const [account, setAccount] = useState<{ id: string; name: string } | null>(null)
  const [added, setAdded] = useState<Json<AddedKey> | null>(null)
  if (added !== null) {
    return (
      <Dialog title={t.clients.keyAdded} onClose={onClose}>
        <p class="notice warning">{t.clients.secretOnce}</p>
        <h3>{t.clients.key}</h3>
        <Copyable text={added.key} label={t.clients.key} />
        <footer class="actions">
          <button type="button" class="primary" onClick={onClose}>
            {t.common.close}
          </button>
        </footer>
      </Dialog>
    )
  }
  return (
    <Dialog title={t.clients.addKey} onClose={onClose}>
      <form
        onSubmit={(event) => {
          event.preventDefault()
          if (account === null) return
          run(async () => setAdded(await post(`/api/clients/${client}/keys`, { account: account.id })))
        }}
      >
        <p>{t.clients.addKeyText}</p>
        <AccountChooser label={t.common.account} value={account} onChoose={setAccount} />
        <ActionFailure error={error} />
        <footer class="actions">
          <button type="button" onClick={onClose}>
            {t.common.cancel}
          </button>
          <button type="submit" class="primary" disabled={isRunning || account === null}>
            {t.clients.addSubmit}
          </button>
        </footer>
      </form>
    </Dialog>
  )
}
