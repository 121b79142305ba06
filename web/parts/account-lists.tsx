import { useCallback, useState } from 'preact/hooks'
import type { KeyDetails } from '../../src/operator/clients.ts'
import type { EndpointSummary } from '../../src/operator/endpoints/endpoints.ts'
import { get, type Json, queryOf } from '../api.ts'
import { useList } from '../hooks.ts'
import { Link } from '../router.tsx'
import { useRole } from '../session.ts'
import { useLocalized } from '../texts.ts'
import { CredentialStatus } from './credentials.tsx'
import { AddEndpoint } from './endpoint-form.tsx'
import { EndpointTable } from './endpoint-table.tsx'
import { Panel } from './page.tsx'
import { ListView } from './states.tsx'
import { Table } from './table.tsx'
import { Time } from './values.tsx'

interface EndpointPage {
  endpoints: Array<Json<EndpointSummary>>
  next: string | null
}

export function AccountEndpoints({ id }: { id: string }) {
  const { t } = useLocalized()
  const isManager = useRole('manager')
  const load = useCallback(
    (after: string | null, signal: AbortSignal) =>
      get<EndpointPage>(`/api/endpoints${queryOf({ account: id, after })}`, signal).then(
        ({ endpoints, next }) => ({
          items: endpoints,
          next,
        }),
      ),
    [id],
  )
  const list = useList(load)
  const [isAdding, setAdding] = useState(false)
  return (
    <Panel
      title={t.account.endpoints}
      actions={
        isManager && (
          <button type="button" onClick={() => setAdding(true)}>
            {t.endpoints.add}
          </button>
        )
      }
    >
      <ListView list={list} empty={<p class="muted">{t.account.noEndpoints}</p>} isQuiet>
        {(endpoints) => <EndpointTable endpoints={endpoints} withoutAccount />}
      </ListView>
      {isAdding && (
        <AddEndpoint
          account={id}
          onClose={() => {
            setAdding(false)
            list.reload()
          }}
        />
      )}
    </Panel>
  )
}

interface KeyPage {
  keys: Array<Json<KeyDetails>>
  next: string | null
}

export function AccountKeys({ id }: { id: string }) {
  const { t } = useLocalized()
  const load = useCallback(
    (after: string | null, signal: AbortSignal) =>
      get<KeyPage>(`/api/accounts/${id}/keys${queryOf({ after })}`, signal).then(({ keys, next }) => ({
        items: keys,
        next,
      })),
    [id],
  )
  const list = useList(load)
  return (
    <Panel title={t.account.keys}>
      <ListView list={list} empty={<p class="muted">{t.account.noKeys}</p>} isQuiet>
        {(keys) => <KeyTable keys={keys} />}
      </ListView>
    </Panel>
  )
}

function KeyTable({ keys }: { keys: KeyPage['keys'] }) {
  const { t } = useLocalized()
  return (
    <Table columns={[t.clients.key, t.clients.client, t.common.status, t.common.created]}>
      {keys.map((key) => (
        <tr key={key.id}>
          <th scope="row">{key.id}</th>
          <td>
            <Link href={`/clients/${key.clientRowId}`}>{key.clientName ?? key.clientId}</Link>
          </td>
          <td>
            {/* A key works only if its client does. */}
            {key.works || key.isExpired || key.status !== 'active' ? (
              <CredentialStatus credential={key} />
            ) : (
              <span class="tag bad">{t.clients.clientRefused}</span>
            )}
          </td>
          <td>
            <Time at={key.createdAt} />
          </td>
        </tr>
      ))}
    </Table>
  )
}
