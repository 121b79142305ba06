/** All accounts in one table, worst first. */
import { useMemo, useState } from 'preact/hooks'
import { csvFile } from '../../src/http/csv.ts'
import { serverNowMs } from '../clock.ts'
import { useRead } from '../operations.ts'
import { DownloadButton } from '../parts/downloads.tsx'
import {
  type Account,
  SORTED_BY,
  type SortColumn,
  useFleetCharts,
  useFleetColumns,
} from '../parts/fleet-columns.tsx'
import { type FleetFilter, FleetFilters, searchFleet, useChosen } from '../parts/fleet-filter.tsx'
import { ManyAccounts } from '../parts/many-accounts.tsx'
import { Page } from '../parts/page.tsx'
import { Empty, Loaded, More } from '../parts/states.tsx'
import { type Column, Table, useSorted } from '../parts/table.tsx'
import { Link, usePlace } from '../router.tsx'
import { useRole } from '../session.ts'
import { fill, useLocalized } from '../texts.ts'

const REFRESH_MS = 30_000

/** Rows that are shown at first, and each time more. */
const ROWS = 200

export function FleetPage() {
  const { t, clock } = useLocalized()
  const fleet = useRead('fleet.list', null, {}, REFRESH_MS)
  const { query } = usePlace()
  const canManage = useRole('manager')
  const filter = {
    q: query.get('q') ?? '',
    state: query.get('state'),
    problem: query.get('problem'),
    organization: query.get('organization'),
  }
  const accounts = fleet.data?.fleet
  const matching = useMemo(
    () => searchFleet(accounts ?? [], filter),
    [accounts, filter.q, filter.problem, filter.organization],
  )
  const loadedAt = useMemo(() => new Date(serverNowMs()).toISOString(), [accounts])
  return (
    <Page
      title={t.fleet.title}
      lead={matching.length > 0 ? <Totals accounts={matching} /> : undefined}
      actions={
        accounts && (
          <>
            <span class="muted small-text">{fill(t.fleet.updated, { time: clock(loadedAt) })}</span>
            <DownloadButton label="CSV" file="fleet.csv" type="text/csv" textOf={() => csvOf(matching)} />
            {canManage && <AddLinks />}
          </>
        )
      }
    >
      <Loaded query={fleet}>
        {({ fleet: all }) =>
          all.length === 0 ? (
            <Empty title={t.fleet.empty}>{canManage && <p>{t.fleet.emptyHelp}</p>}</Empty>
          ) : (
            <>
              {canManage && <NotificationHint />}
              <FleetFilters filter={filter} all={all} accounts={matching} />
              <FleetTable
                filter={filter}
                accounts={matching.filter(({ status }) => (filter.state ?? status) === status)}
                onChanged={fleet.reload}
              />
            </>
          )
        }
      </Loaded>
    </Page>
  )
}

/** Columns that are left out while they have nothing to show. */
const isOptional = (name: SortColumn | 'problem'): name is 'unapplied' | 'waiting' | 'quota' =>
  ['unapplied', 'waiting', 'quota'].includes(name)

/** Of the accounts that match the filter. */
function Totals({ accounts }: { accounts: Account[] }) {
  const { t, number, signed } = useLocalized()
  const sum = (value: (account: Account) => number | null) =>
    accounts.reduce((total, account) => total + (value(account) ?? 0), 0)
  return (
    <>
      {fill(t.fleet.totals, {
        accounts: number(accounts.length),
        followers: number(sum(({ following }) => following)),
        growth: signed(sum(({ growth7d }) => growth7d)),
        deliveries: number(sum(({ deliveries24h }) => deliveries24h)),
      })}
    </>
  )
}

const CSV_COLUMNS = [
  ...([
    'id',
    'name',
    'basicId',
    'organizationName',
    'status',
    'lastDeliveryAt',
    'deliveries24h',
    'following',
  ] as const),
  ...(['growth7d', 'unapplied', 'endpointsPending', 'endpointsFailed', 'quotaUsed', 'quotaLimit'] as const),
]

function csvOf(accounts: Account[]): string {
  const rows = accounts.map((account) => [
    ...CSV_COLUMNS.map((column) => account[column]),
    account.problem?.reason ?? null,
  ])
  return csvFile([...CSV_COLUMNS, 'problem'], rows)
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
  const { data } = useRead('channel.list', null)
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
  const [count, setCount] = useState(ROWS)
  const { sorted, sortOf } = useSorted<Account, SortColumn>(accounts, SORTED_BY, 'state', true)
  const shown = sorted.slice(0, count)
  const charts = useFleetCharts(shown.map(({ id }) => id))
  const columns = useFleetColumns(charts).filter(
    ([name]) => !isOptional(name) || accounts.some((account) => SORTED_BY[name](account)),
  )
  if (accounts.length === 0) return <Empty title={t.fleet.noMatch}>{t.fleet.noMatchHelp}</Empty>
  const choice: Column<Account> = [
    <input
      key="choice"
      type="checkbox"
      aria-label={t.many.chooseAll}
      checked={chosen.size === accounts.length}
      onChange={toggleAll}
    />,
    ({ id, name }) => (
      <input
        type="checkbox"
        aria-label={fill(t.many.choose, { name })}
        checked={chosen.has(id)}
        onChange={() => toggle(id)}
      />
    ),
    'col-choose not-narrow',
  ]
  return (
    <>
      {chosen.size > 0 && (
        <ManyAccounts count={chosen.size} selection={selection} onClear={clear} onChanged={onChanged} />
      )}
      <Table
        class="fleet"
        rows={shown}
        header={canManage ? 2 : 1}
        columns={[
          ...(canManage ? [choice] : []),
          ...columns.map(
            ([name, cell, all, own = '']): Column<Account> => [
              t.fleet[name],
              cell,
              all,
              own,
              name === 'problem' ? undefined : sortOf(name),
            ],
          ),
        ]}
      />
      <More list={{ hasMore: count < sorted.length, isLoading: false, more: () => setCount(count + ROWS) }} />
    </>
  )
}
