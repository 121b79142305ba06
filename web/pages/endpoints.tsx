import { useItems } from '../operations.ts'
import { DialogButton } from '../parts/dialog.tsx'
import { AddEndpoint } from '../parts/endpoint-form.tsx'
import { EndpointTable } from '../parts/endpoint-table.tsx'
import { AccountFilter } from '../parts/filters.tsx'
import { Page } from '../parts/page.tsx'
import { Empty, ListView } from '../parts/states.tsx'
import { accountOf, usePlace } from '../router.tsx'
import { useRole } from '../session.ts'
import { useLocalized } from '../texts.ts'

export function EndpointsPage() {
  const { t } = useLocalized()
  const account = accountOf(usePlace().query)
  const isManager = useRole('manager')
  const list = useItems('endpoint.list', null, { account })
  const add = (
    <DialogButton class="primary" label={t.endpoints.add} onClosed={list.reload}>
      {(close) => <AddEndpoint account={account} onClose={close} />}
    </DialogButton>
  )
  return (
    <Page title={t.endpoints.title} lead={t.endpoints.lead} actions={isManager && add}>
      <div class="filters">
        <AccountFilter account={account} />
      </div>
      <ListView list={list} empty={<Empty title={t.endpoints.empty}>{t.endpoints.emptyHelp}</Empty>}>
        {(endpoints) => <EndpointTable endpoints={endpoints} />}
      </ListView>
    </Page>
  )
}
