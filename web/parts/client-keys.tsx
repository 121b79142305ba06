/** The keys of a client. */
import { useCallback, useState } from 'preact/hooks'
import type { AddedKey } from '../../src/accounts/provisioning.ts'
import type { ClientDetails, KeyDetails } from '../../src/operator/clients.ts'
import { get, type Json, post, queryOf } from '../api.ts'
import { useAction, useList } from '../hooks.ts'
import { Link } from '../router.tsx'
import { fill } from '../texts/languages.ts'
import { useLocalized } from '../texts.ts'
import { AccountChooser } from './chooser.tsx'
import { CredentialStatus, EditExpiry, ExpiryField, Revoke } from './credentials.tsx'
import { Dialog } from './dialog.tsx'
import { Panel } from './page.tsx'
import { SecretDialog } from './secret-once.tsx'
import { ActionFailure, ListView } from './states.tsx'
import { Table } from './table.tsx'
import { toIso } from './time-range.tsx'
import { Time } from './values.tsx'

type Client = Json<ClientDetails>
type Key = Json<KeyDetails>

export function Keys({ client: { id, status }, isManager }: { client: Client; isManager: boolean }) {
  const { t } = useLocalized()
  const [isAdding, setAdding] = useState(false)
  const [revoking, setRevoking] = useState<Key | null>(null)
  const [changing, setChanging] = useState<Key | null>(null)
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
    setChanging(null)
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
        {(keys) => (
          <KeyTable
            keys={keys}
            actions={isManager ? { onRevoke: setRevoking, onExpiry: setChanging } : null}
          />
        )}
      </ListView>
      {isAdding && <AddKey client={id} onClose={finish} />}
      {changing && (
        <EditExpiry
          path={`/api/keys/${changing.id}`}
          title={fill(t.clients.changeExpiryOf, { id: changing.id })}
          expiresAt={changing.expiresAt}
          onClose={() => setChanging(null)}
          onDone={finish}
        />
      )}
      {revoking && (
        <Revoke
          path={`/api/keys/${revoking.id}/revoke`}
          title={fill(t.clients.revokeKey, { id: revoking.id })}
          text={t.clients.revokeKeyText}
          onClose={() => setRevoking(null)}
          onDone={finish}
        />
      )}
    </Panel>
  )
}

interface KeyActions {
  onRevoke: (key: Key) => void
  onExpiry: (key: Key) => void
}

function KeyTable({ keys, actions }: { keys: Key[]; actions: KeyActions | null }) {
  const { t } = useLocalized()
  return (
    <Table
      columns={[
        t.clients.key,
        t.common.account,
        t.common.status,
        { label: t.clients.expires, class: 'medium-only' },
        { label: t.clients.lastUsed, class: 'medium-only' },
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
            <CredentialStatus credential={key} />
          </td>
          <td class="medium-only">
            <Time at={key.expiresAt} />
          </td>
          <td class="medium-only">
            <Time at={key.lastUsedAt} />
          </td>
          <td class="medium-only">
            <Time at={key.createdAt} />
          </td>
          <td class="numeric">
            {key.status === 'active' && actions && (
              <>
                <button
                  type="button"
                  class="small"
                  aria-label={fill(t.clients.changeExpiryOf, { id: key.id })}
                  onClick={() => actions.onExpiry(key)}
                >
                  {t.clients.expiry}
                </button>{' '}
                <button
                  type="button"
                  class="small"
                  aria-label={fill(t.clients.revokeKey, { id: key.id })}
                  onClick={() => actions.onRevoke(key)}
                >
                  {t.clients.revoke}
                </button>
              </>
            )}
          </td>
        </tr>
      ))}
    </Table>
  )
}

function AddKey({ client, onClose }: { client: string; onClose: () => void }) {
  const { t } = useLocalized()
  const { isRunning, error, run } = useAction()
  const [account, setAccount] = useState<{ id: string; name: string } | null>(null)
  const [expires, setExpires] = useState('')
  const [added, setAdded] = useState<Json<AddedKey> | null>(null)
  if (added !== null) {
    const secrets = [{ label: t.clients.key, secret: added.key }]
    return <SecretDialog title={t.clients.keyAdded} secrets={secrets} onClose={onClose} />
  }
  return (
    <Dialog title={t.clients.addKey} onClose={onClose}>
      <form
        onSubmit={(event) => {
          event.preventDefault()
          if (account === null) return
          const body = { account: account.id, expiresAt: toIso(expires) }
          run(async () => setAdded(await post(`/api/clients/${client}/keys`, body)))
        }}
      >
        <p>{t.clients.addKeyText}</p>
        <AccountChooser label={t.common.account} value={account} onChoose={setAccount} />
        <ExpiryField value={expires} onChange={setExpires} />
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
