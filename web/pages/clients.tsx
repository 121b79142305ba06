import { useCallback, useState } from 'preact/hooks'
import type { AddedAccess } from '../../src/operations/clients.ts'
import type { ClientDetails } from '../../src/operator/clients.ts'
import { get, type Json, post, queryOf } from '../api.ts'
import { useAction, useList } from '../hooks.ts'
import { AccountChooser } from '../parts/chooser.tsx'
import { CredentialStatus, ExpiryField } from '../parts/credentials.tsx'
import { Dialog } from '../parts/dialog.tsx'
import { Page } from '../parts/page.tsx'
import { SecretDialog } from '../parts/secret-once.tsx'
import { ActionFailure, Empty, ListView } from '../parts/states.tsx'
import { Table } from '../parts/table.tsx'
import { toIso } from '../parts/time-range.tsx'
import { Time } from '../parts/values.tsx'
import { Link } from '../router.tsx'
import { useOperator, useRole } from '../session.ts'
import { useLocalized } from '../texts.ts'

type Client = Json<ClientDetails>

export function ClientsPage() {
  const { t } = useLocalized()
  const [isAdding, setAdding] = useState(false)
  const isManager = useRole('manager')
  const load = useCallback(
    (after: string | null, signal: AbortSignal) =>
      get<{ clients: Client[]; next: string | null }>(`/api/clients${queryOf({ after })}`, signal).then(
        ({ clients, next }) => ({ items: clients, next }),
      ),
    [],
  )
  const list = useList(load)
  return (
    <Page
      title={t.clients.title}
      lead={t.clients.lead}
      actions={
        isManager && (
          <button type="button" class="primary" onClick={() => setAdding(true)}>
            {t.clients.add}
          </button>
        )
      }
    >
      <ListView list={list} empty={<Empty title={t.clients.empty}>{t.clients.emptyHelp}</Empty>}>
        {(clients) => <ClientTable clients={clients} />}
      </ListView>
      {isAdding && (
        <AddClient
          onClose={() => {
            setAdding(false)
            list.reload()
          }}
        />
      )}
    </Page>
  )
}

function ClientTable({ clients }: { clients: Client[] }) {
  const { t } = useLocalized()
  return (
    <Table
      columns={[
        t.clients.client,
        t.common.status,
        { label: t.clients.activeKeys, class: 'numeric' },
        { label: t.clients.lastUsed, class: 'numeric medium-only' },
        { label: t.common.created, class: 'numeric medium-only' },
      ]}
    >
      {clients.map((client) => (
        <tr key={client.id}>
          <th scope="row" class="col-account">
            <Link href={`/clients/${client.id}`}>{client.name ?? t.clients.noName}</Link>
            <div class="sub mono">{client.clientId}</div>
          </th>
          <td>
            <CredentialStatus credential={client} />
          </td>
          <td class="numeric">{client.activeKeys}</td>
          <td class="numeric medium-only">
            <Time at={client.lastUsedAt} />
          </td>
          <td class="numeric medium-only">
            <Time at={client.createdAt} />
          </td>
        </tr>
      ))}
    </Table>
  )
}

function AddClient({ onClose }: { onClose: () => void }) {
  const { t } = useLocalized()
  const { isRunning, error, run } = useAction()
  const [name, setName] = useState('')
  const [expires, setExpires] = useState('')
  const [added, setAdded] = useState<Json<AddedAccess> | null>(null)
  const [account, setAccount] = useState<{ id: string; name: string } | null>(null)
  // Operators of some organizations see the clients that have a key there.
  const needsAccount = useOperator().organizationIds !== null
  if (added !== null) {
    const secrets = [
      { label: t.clients.clientId, secret: added.clientId },
      { label: t.clients.clientSecret, secret: added.clientSecret },
      ...(added.key ? [{ label: t.clients.key, secret: added.key }] : []),
    ]
    // The list is in the order of ids, so a new client may be on a page that is not loaded.
    const next = (
      <Link class="button" href={`/clients/${added.id}`}>
        {t.clients.addKey}
      </Link>
    )
    return <SecretDialog title={t.clients.added} {...{ secrets, onClose, next }} />
  }
  return (
    <Dialog title={t.clients.add} onClose={onClose}>
      <form
        onSubmit={(event) => {
          event.preventDefault()
          run(async () =>
            setAdded(
              await post('/api/clients', {
                ...(name.trim() === '' ? {} : { name: name.trim() }),
                ...(account === null ? {} : { account: account.id }),
                expiresAt: toIso(expires),
              }),
            ),
          )
        }}
      >
        <label class="field">
          <span>{t.clients.name}</span>
          <input
            type="text"
            maxLength={200}
            placeholder={t.clients.nameHint}
            value={name}
            onInput={(event) => setName(event.currentTarget.value)}
          />
        </label>
        <AccountChooser
          label={needsAccount ? t.clients.firstKey : t.clients.firstKeyOrNone}
          value={account}
          onChoose={setAccount}
        />
        <ExpiryField value={expires} onChange={setExpires} />
        <ActionFailure error={error} />
        <footer class="actions">
          <button type="button" onClick={onClose}>
            {t.common.cancel}
          </button>
          <button type="submit" class="primary" disabled={isRunning || (needsAccount && account === null)}>
            {t.clients.addSubmit}
          </button>
        </footer>
      </form>
    </Dialog>
  )
}
