/** All accounts in one table, worst first. */
import { useMemo, useState } from 'preact/hooks'
import type { AccountStatus } from '../../src/watch/account-status.ts'
import type { FleetRow as Row } from '../../src/watch/fleet.ts'
import type { Json } from '../api.ts'
import { serverNowMs } from '../clock.ts'
import { useQuery } from '../hooks.ts'
import { Chips } from '../parts/filters.tsx'
import { useFleetCharts } from '../parts/fleet-charts.ts'
import { FleetRow, quotaShare } from '../parts/fleet-row.tsx'
import { Page } from '../parts/page.tsx'
import { compareBy, type Order, SortHeader } from '../parts/sort.tsx'
import { Empty, Failure, Loading } from '../parts/states.tsx'
import { StatusLabel } from '../parts/status.tsx'
import { useRowWindow } from '../parts/window.ts'
import { Link, replaceQuery, usePlace } from '../router.tsx'
import { useRole } from '../session.ts'
import { fill, useLocalized } from '../texts.ts'

type Account = Json<Row>

const REFRESH_MS = 30_000
const STATUSES: AccountStatus[] = ['broken', 'degraded', 'quiet', 'ok']

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
  const text = query.get('q') ?? ''
  const status = query.get('state')
  const accounts = data?.accounts
  const matching = useMemo(() => search(accounts ?? [], text), [accounts, text])
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
          <Filters text={text} status={status} accounts={matching} />
          <FleetTable
            accounts={status === null ? matching : matching.filter((account) => account.status === status)}
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

function search(accounts: Account[], text: string): Account[] {
  const wanted = text.trim().toLowerCase()
  if (wanted === '') return accounts
  return accounts.filter(({ id, name, basicId, organizationName }) =>
    [id, name, basicId ?? '', organizationName].some((value) => value.toLowerCase().includes(wanted)),
  )
}

function Filters({ text, status, accounts }: { text: string; status: string | null; accounts: Account[] }) {
  const { t, number } = useLocalized()
  return (
    <div class="filters">
      <input
        type="search"
        aria-label={t.fleet.search}
        placeholder={t.fleet.searchHint}
        value={text}
        onInput={(event) => replaceQuery({ q: event.currentTarget.value })}
      />
      <Chips label={t.fleet.states}>
        <button type="button" aria-pressed={status === null} onClick={() => replaceQuery({ state: null })}>
          {t.common.all} <b>{number(accounts.length)}</b>
        </button>
        {STATUSES.map((name) => (
          <button
            key={name}
            type="button"
            aria-pressed={status === name}
            onClick={() => replaceQuery({ state: status === name ? null : name })}
          >
            <StatusLabel status={name} />{' '}
            <b>{number(accounts.filter((account) => account.status === name).length)}</b>
          </button>
        ))}
      </Chips>
    </div>
  )
}

function FleetTable({ accounts }: { accounts: Account[] }) {
  const { t } = useLocalized()
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
  return (
    <div class="table-frame">
      <table class="fleet" aria-rowcount={sorted.length + 1}>
        <thead>
          <tr>
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
            />
          ))}
          {below > 0 && <Gap height={below} />}
        </tbody>
      </table>
    </div>
  )
}

function Gap({ height }: { height: number }) {
  return (
    <tr class="gap">
      <td colSpan={10} style={{ height: `${height}px` }} />
    </tr>
  )
}
