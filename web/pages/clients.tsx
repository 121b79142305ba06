import { useState } from 'preact/hooks'
import { perform, type Result, useItems } from '../operations.ts'
import { AccountChooser } from '../parts/chooser.tsx'
import { CredentialStatus } from '../parts/credentials.tsx'
import { DialogButton, SecretDialog } from '../parts/dialog.tsx'
import { FormDialog, TextField } from '../parts/form.tsx'
import { Page } from '../parts/page.tsx'
import { Empty, ListView } from '../parts/states.tsx'
import { Table } from '../parts/table.tsx'
import { Time } from '../parts/values.tsx'
import { Link, navigate } from '../router.tsx'
import { useOperator, useRole } from '../session.ts'
import { useLocalized } from '../texts.ts'

export function ClientsPage() {
  const { t } = useLocalized()
  const isManager = useRole('manager')
  const list = useItems('client.list')
  const add = (
    <DialogButton class="primary" label={t.clients.add} onClosed={list.reload}>
      {(close) => <AddClient onClose={close} />}
    </DialogButton>
  )
  return (
    <Page title={t.clients.title} lead={t.clients.lead} actions={isManager && add}>
      <ListView list={list} empty={<Empty title={t.clients.empty}>{t.clients.emptyHelp}</Empty>}>
        {(clients) => (
          <Table
            rows={clients}
            columns={[
              [
                t.clients.client,
                ({ id, name, clientId }) => (
                  <>
                    <Link href={`/clients/${id}`}>{name ?? t.clients.noName}</Link>
                    <div class="sub mono">{clientId}</div>
                  </>
                ),
              ],
              [t.common.status, (client) => <CredentialStatus credential={client} />],
              [t.clients.activeKeys, ({ activeKeys }) => activeKeys, 'numeric'],
              [t.clients.lastUsed, ({ lastUsedAt }) => <Time at={lastUsedAt} />, 'numeric medium-only'],
              [t.common.created, ({ createdAt }) => <Time at={createdAt} />, 'numeric medium-only'],
            ]}
          />
        )}
      </ListView>
    </Page>
  )
}

function AddClient({ onClose }: { onClose: () => void }) {
  const { t } = useLocalized()
  const [name, setName] = useState('')
  const [added, setAdded] = useState<Result<'client.add'> | null>(null)
  const [account, setAccount] = useState<{ id: string; name: string } | null>(null)
  // Operators of some organizations see the clients that have a key there.
  const needsAccount = useOperator().organizationIds !== null
  if (added !== null) {
    const secrets = [
      { label: t.clients.clientId, secret: added.clientId },
      { label: t.clients.clientSecret, secret: added.clientSecret },
      ...(added.key ? [{ label: t.clients.key, secret: added.key }] : []),
    ]
    // Its page has its keys. The list is in the order of ids, so the client may be on a page that is not loaded.
    const open = () => navigate(`/clients/${added.id}`)
    return <SecretDialog title={t.clients.added} secrets={secrets} onClose={open} />
  }
  const add = async () => {
    const given = { name: name.trim() || null, account: account?.id ?? null }
    setAdded(await perform('client.add', null, given))
  }
  return (
    <FormDialog
      title={t.clients.add}
      submit={t.clients.addSubmit}
      onSubmit={add}
      onClose={onClose}
      isComplete={!needsAccount || account !== null}
    >
      <TextField
        name="name"
        label={t.clients.name}
        maxLength={200}
        placeholder={t.clients.nameHint}
        value={name}
        onChange={setName}
      />
      <AccountChooser
        label={needsAccount ? t.clients.firstKey : t.clients.firstKeyOrNone}
        value={account}
        onChoose={setAccount}
      />
    </FormDialog>
  )
}
