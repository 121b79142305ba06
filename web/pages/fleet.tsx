/** All accounts in one table, worst first. */
import { useMemo, useState } from 'preact/hooks'
import type { FleetRow as Row } from '../../src/watch/fleet.ts'
import type { Json } from '../api.ts'
import { serverNowMs } from '../clock.ts'
import { useQuery } from '../hooks.ts'
import { useFleetCharts } from '../parts/fleet-charts.ts'
import { type FleetFilter, FleetFilters, STATUSES, searchFleet, useChosen } from '../parts/fleet-filter.tsx'
import { FleetRow, quotaShare } from '../parts/fleet-row.tsx'
import { ManyAccounts } from '../parts/many-accounts.tsx'
import { Page } from '../parts/page.tsx'
import { compareBy, type Order, SortHeader } from '../parts/sort.tsx'
import { Empty, Failure, Loading } from '../parts/states.tsx'
import { useRowWindow } from '../parts/window.ts'
import { Link, usePlace } from '../router.tsx'
import { useRole } from '../session.ts'
import { fill, useLocalized } from '../texts.ts'

type Account = Json<Row>

const REFRESH_MS = 30_000

/** The columns in their order, with the values by which they sort. */
const COLUMNS = {
  state: { class: 'col-state', value: ({ status }: Account) => -STATUSES.indexOf(status) },
  account: { class: '', value: ({ name }: Account) => name },
  problem: { class: 'wide-only', value: null },
  deliveries: { class: 'numeric', value: ({ deliveries24h }: Account) => deliveries24h },
  lastDelivery: { class: 'numeric medium-only', value: ({ lastDeliveryAt }: Account) => lastDeliveryAt },
  followers: { class: 'numeric medium-only', value: ({ following }: Account) => following },
  growth: { class: 'numeric medium-only', value: ({ growth7d }: Account) => growth7d },
  unapplied: { class: 'numeric extra-only', value: ({ unapplied }: Account) => unapplied },
  waiting: {
    class: 'numeric extra-only',
    value: ({ endpointsPending, endpointsFailed }: Account) => endpointsPending + endpointsFailed,
  },
  quota: { class: 'numeric extra-only', value: quotaShare },
} satisfies Record<string, { class: string; value: ((account: Account) => number | string | null) | null }>
type Column = keyof typeof COLUMNS

export function FleetPage() {
  const { t, number, clock } = useLocalized()
  const { data, error, isLoading, reload } = useQuery<{ accounts: Account[] }>('/api/fleet', REFRESH_MS)
  const { query } = usePlace()
  const canManage = useRole('manager')
  const filter = {
    q: query.get('q') ?? '',
    state: query.get('state'),
    problem: query.get('problem'),
    organization: query.get('organization'),
  }
  const accounts = data?.accounts
  const matching = useMemo(
    () => searchFleet(accounts ?? [], filter),
    [accounts, filter.q, filter.problem, filter.organization],
  )
  const loadedAt = useMemo(() => new Date(serverNowMs()).toISOString(), [accounts])
  return (
    <Page
      title={t.fleet.title}
      lead={
        accounts && accounts.length > 0
          ? fill(t.fleet.lead, { accounts: number(accounts.length) })
          : undefined
      }
      actions={
        accounts && (
          <>
            <span class="muted small-text">{fill(t.fleet.updated, { time: clock(loadedAt) })}</span>
            {canManage && <AddLinks />}
          </>
        )
      }
    >
      {error && <Failure error={error} retry={reload} />}
      {isLoading && <Loading />}
      {accounts?.length === 0 && (
        <Empty title={t.fleet.empty}>{canManage && <p>{t.fleet.emptyHelp}</p>}</Empty>
      )}
      {accounts !== undefined && accounts.length > 0 && (
        <>
          {canManage && <NotificationHint />}
          <FleetFilters filter={filter} all={accounts} accounts={matching} />
          <FleetTable
            filter={filter}
            accounts={
              filter.state === null ? matching : matching.filter(({ status }) => status === filter.state)
            }
            onChanged={reload}
          />
        </>
      )}
    </Page>
  )
}

function AddLinks() {
  const { t } = useLocalized()
  return (
    <>
      <Link class="button" href="/accounts/file">
        {t.manage.addFile}
      </Link>
      <Link class="button primary" href="/accounts/new">
        {t.manage.addAccount}
      </Link>
    </>
  )
}

/** Until somebody has added a channel, nobody gets a message when an account breaks. */
function NotificationHint() {
  const { t } = useLocalized()
  const { data } = useQuery<{ channels: unknown[] }>('/api/notifications')
  if (data?.channels.length !== 0) return null
  return (
    <p class="notice hint">
      {t.notifications.hint} <Link href="/settings/notifications">{t.notifications.add}</Link>
    </p>
  )
}

function FleetTable({
  filter,
  accounts,
  onChanged,
}: {
  filter: FleetFilter
  /** those that match the filter */
  accounts: Account[]
  onChanged: () => void
}) {
  const { t } = useLocalized()
  const canManage = useRole('manager')
  const { chosen, toggle, toggleAll, clear, selection } = useChosen(filter, accounts)
  const [order, setOrder] = useState<Order<Column>>({ column: 'state', isDescending: true })
  const sorted = useMemo(
    () =>
      accounts.toSorted(compareBy<Account>(COLUMNS[order.column].value ?? (() => null), order.isDescending)),
    [accounts, order],
  )
  const { body, first, last, above, below } = useRowWindow(sorted.length)
  const shown = sorted.slice(first, last)
  const charts = useFleetCharts(shown.map(({ id }) => id))
  if (accounts.length === 0) return <Empty title={t.fleet.noMatch}>{t.fleet.noMatchHelp}</Empty>
  const table = (
    <div class="table-frame">
      <table class="fleet" aria-rowcount={sorted.length + 1}>
        <thead>
          <tr>
            {canManage && (
              <th scope="col" class="col-choose not-narrow">
                <input
                  type="checkbox"
                  aria-label={t.many.chooseAll}
                  checked={chosen.size === accounts.length}
                  onChange={toggleAll}
                />
              </th>
            )}
            {(Object.keys(COLUMNS) as Column[]).map((name) =>
              COLUMNS[name].value === null ? (
                <th key={name} scope="col" class={COLUMNS[name].class}>
                  {t.fleet[name]}
                </th>
              ) : (
                <SortHeader
                  key={name}
                  column={name}
                  order={order}
                  onSort={setOrder}
                  class={COLUMNS[name].class}
                >
                  {t.fleet[name]}
                </SortHeader>
              ),
            )}
          </tr>
        </thead>
        <tbody ref={body}>
          {above > 0 && <Gap height={above} />}
          {shown.map((account, i) => (
            <FleetRow
              key={account.id}
              account={account}
              charts={charts.get(account.id)}
              index={first + i + 2}
              isChosen={chosen.has(account.id)}
              onChoose={canManage ? () => toggle(account.id) : undefined}
            />
          ))}
          {below > 0 && <Gap height={below} />}
        </tbody>
      </table>
    </div>
  )
  return (
    <>
      {chosen.size > 0 && (
        <ManyAccounts count={chosen.size} selection={selection} onClear={clear} onChanged={onChanged} />
      )}
      {table}
    </>
  )
}

function Gap({ height }: { height: number }) {
  return (
    <tr class="gap">
      <td colSpan={11} style={{ height: `${height}px` }} />
    </tr>
  )
}
