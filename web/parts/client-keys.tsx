/** The keys of a client. */
import { useState } from 'preact/hooks'
import type { ClientDetails } from '../../src/accounts/clients.ts'
import type { Json } from '../api.ts'
import { type Item, perform, type Result, useItems } from '../operations.ts'
import { Link } from '../router.tsx'
import { fill, useLocalized } from '../texts.ts'
import { AccountChooser } from './chooser.tsx'
import { CredentialStatus, Revoke } from './credentials.tsx'
import { DialogButton, SecretDialog } from './dialog.tsx'
import { FormDialog } from './form.tsx'
import { Panel } from './page.tsx'
import { ListView } from './states.tsx'
import { Table } from './table.tsx'
import { Time } from './values.tsx'

type Client = Json<ClientDetails>
type Key = Item<'client.keys'>

export function Keys({ client: { id, status }, isManager }: { client: Client; isManager: boolean }) {
  const { t } = useLocalized()
  const list = useItems('client.keys', id)
  const add = (
    <DialogButton class="primary" label={t.clients.addKey} onClosed={list.reload}>
      {(close) => <AddKey client={id} onClose={close} />}
    </DialogButton>
  )
  return (
    <Panel title={t.clients.keys} actions={status === 'active' && isManager && add}>
      <ListView list={list} empty={<p class="muted">{t.clients.noKeys}</p>}>
        {(keys) => <KeyTable keys={keys} onChange={isManager ? list.reload : null} />}
      </ListView>
    </Panel>
  )
}

/** @param onChange null: the operator may change none */
function KeyTable({ keys, onChange }: { keys: Key[]; onChange: (() => void) | null }) {
  const { t } = useLocalized()
  return (
    <Table
      rows={keys}
      headerClass=""
      columns={[
        [t.clients.key, ({ id }) => id],
        [
          t.common.account,
          ({ accountId, accountName }) =>
            accountName === null ? (
              <span class="muted">{`${t.clients.unknownAccount} ${accountId}`}</span>
            ) : (
              <Link href={`/accounts/${accountId}`}>{accountName}</Link>
            ),
        ],
        [t.common.status, (key) => <CredentialStatus credential={key} />],
        [t.clients.lastUsed, ({ lastUsedAt }) => <Time at={lastUsedAt} />, 'medium-only'],
        [t.common.created, ({ createdAt }) => <Time at={createdAt} />, 'medium-only'],
        [
          null,
          (key) => key.status === 'active' && onChange && <KeyActions apiKey={key} onChange={onChange} />,
          undefined,
          'numeric',
        ],
      ]}
    />
  )
}

function KeyActions({
  apiKey: { id, accountId, accountName },
  onChange,
}: {
  apiKey: Key
  onChange: () => void
}) {
  const { t } = useLocalized()
  const revocation = fill(t.clients.revokeKey, { id, account: accountName ?? accountId })
  return (
    <DialogButton class="small" label={t.clients.revoke} describedBy={revocation} onClosed={onChange}>
      {(close) => (
        <Revoke of="key" id={id} title={revocation} text={t.clients.revokeKeyText} onClose={close} />
      )}
    </DialogButton>
  )
}

function AddKey({ client, onClose }: { client: string; onClose: () => void }) {
  const { t } = useLocalized()
  const [account, setAccount] = useState<{ id: string; name: string } | null>(null)
  const [added, setAdded] = useState<Result<'key.add'> | null>(null)
  if (added !== null) {
    const secrets = [{ label: t.clients.key, secret: added.key }]
    return <SecretDialog title={t.clients.keyAdded} secrets={secrets} onClose={onClose} />
  }
  const add = async () => {
    if (account === null) return
    setAdded(await perform('key.add', null, { client, account: account.id }))
  }
  return (
    <FormDialog
      title={t.clients.addKey}
      submit={t.clients.addSubmit}
      onSubmit={add}
      onClose={onClose}
      isComplete={account !== null}
    >
      <p>{t.clients.addKeyText}</p>
      <AccountChooser label={t.common.account} value={account} onChoose={setAccount} />
    </FormDialog>
  )
}
