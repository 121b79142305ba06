import { useItems } from '../operations.ts'
import { Link } from '../router.tsx'
import { useRole } from '../session.ts'
import { useLocalized } from '../texts.ts'
import { CredentialStatus } from './credentials.tsx'
import { DialogButton } from './dialog.tsx'
import { AddEndpoint } from './endpoint-form.tsx'
import { EndpointTable } from './endpoint-table.tsx'
import { Panel } from './page.tsx'
import { ListView } from './states.tsx'
import { Table } from './table.tsx'
import { Time } from './values.tsx'

export function AccountEndpoints({ id }: { id: string }) {
  const { t } = useLocalized()
  const isManager = useRole('manager')
  const list = useItems('endpoint.list', null, { account: id })
  const add = (
    <DialogButton label={t.endpoints.add} onClosed={list.reload}>
      {(close) => <AddEndpoint account={id} onClose={close} />}
    </DialogButton>
  )
  return (
    <Panel title={t.account.endpoints} actions={isManager && add}>
      <ListView list={list} empty={<p class="muted">{t.account.noEndpoints}</p>} isQuiet>
        {(endpoints) => <EndpointTable endpoints={endpoints} withoutAccount />}
      </ListView>
    </Panel>
  )
}

export function AccountKeys({ id }: { id: string }) {
  const { t } = useLocalized()
  const list = useItems('account.keys', id)
  return (
    <Panel title={t.account.keys}>
      <ListView list={list} empty={<p class="muted">{t.account.noKeys}</p>} isQuiet>
        {(keys) => (
          <Table
            rows={keys}
            headerClass=""
            columns={[
              [t.clients.key, (key) => key.id],
              [
                t.clients.client,
                ({ clientRowId, clientName, clientId }) => (
                  <Link href={`/clients/${clientRowId}`}>{clientName ?? clientId}</Link>
                ),
              ],
              [
                t.common.status,
                // A key works only if its client does.
                (key) =>
                  key.works || key.status !== 'active' ? (
                    <CredentialStatus credential={key} />
                  ) : (
                    <span class="tag bad">{t.clients.clientRefused}</span>
                  ),
              ],
              [t.common.created, ({ createdAt }) => <Time at={createdAt} />],
            ]}
          />
        )}
      </ListView>
    </Panel>
  )
}
