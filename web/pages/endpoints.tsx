import { useCallback, useState } from 'preact/hooks'
import type { EndpointSummary } from '../../src/operator/endpoints/endpoints.ts'
import { get, type Json, queryOf } from '../api.ts'
import { useList } from '../hooks.ts'
import { AccountFilter } from '../parts/account-filter.tsx'
import { AddEndpoint } from '../parts/endpoint-form.tsx'
import { EndpointTable } from '../parts/endpoint-table.tsx'
import { Page } from '../parts/page.tsx'
import { Empty, ListView } from '../parts/states.tsx'
import { accountOf, usePlace } from '../router.tsx'
import { useRole } from '../session.ts'
import { useLocalized } from '../texts.ts'

export function EndpointsPage() {
  const { t } = useLocalized()
  const account = accountOf(usePlace().query)
  const isManager = useRole('manager')
  const load = useCallback(
    (after: string | null, signal: AbortSignal) =>
      get<{ endpoints: Array<Json<EndpointSummary>>; next: string | null }>(
        `/api/endpoints${queryOf({ account, after })}`,
        signal,
      ).then(({ endpoints, next }) => ({ items: endpoints, next })),
    [account],
  )
  const list = useList(load)
  const [isAdding, setAdding] = useState(false)
  return (
    <Page
      title={t.endpoints.title}
      lead={t.endpoints.lead}
      actions={
        isManager && (
          <button type="button" class="primary" onClick={() => setAdding(true)}>
            {t.endpoints.add}
          </button>
        )
      }
    >
      <div class="filters">
        <AccountFilter account={account} />
      </div>
      <ListView list={list} empty={<Empty title={t.endpoints.empty}>{t.endpoints.emptyHelp}</Empty>}>
        {(endpoints) => <EndpointTable endpoints={endpoints} />}
      </ListView>
      {isAdding && (
        <AddEndpoint
          account={account}
          onClose={() => {
            setAdding(false)
            list.reload()
          }}
        />
      )}
    </Page>
  )
}
