/** The columns of the fleet's table, and the charts of its rows. */
import type { ComponentChildren } from 'preact'
import { useEffect, useState } from 'preact/hooks'
import type { FleetCharts, FleetRow as Row } from '../../src/watch/fleet.ts'
import type { Json } from '../api.ts'
import { useInterval } from '../hooks.ts'
import { read } from '../operations.ts'
import { Link } from '../router.tsx'
import { useRole } from '../session.ts'
import { fill, useLocalized } from '../texts.ts'
import { STATUSES } from './fleet-filter.tsx'
import { Muted } from './mute.tsx'
import { fixPath } from './problem-fixes.ts'
import { StatusLabel, useReason } from './status.tsx'
import { Count, Time } from './values.tsx'

/** The service counts no further. */
const COUNTED_MAX = 10_000

export type Account = Json<Row>
type Charts = Json<FleetCharts>

/** Returns the used fraction of the month's message quota, or null if LINE sets no limit. */
const quotaShare = ({ quotaLimit, quotaUsed }: Account) =>
  quotaLimit === null || quotaLimit === 0 || quotaUsed === null ? null : quotaUsed / quotaLimit

/** The values by which columns sort. */
export const SORTED_BY = {
  state: ({ status }) => -STATUSES.indexOf(status),
  account: ({ name }) => name,
  deliveries: ({ deliveries24h }) => deliveries24h,
  lastDelivery: ({ lastDeliveryAt }) => lastDeliveryAt,
  followers: ({ following }) => following,
  growth: ({ growth7d }) => growth7d,
  unapplied: ({ unapplied }) => unapplied,
  waiting: ({ endpointsPending, endpointsFailed }) => endpointsPending + endpointsFailed,
  quota: quotaShare,
} satisfies Record<string, (account: Account) => number | string | null>
export type SortColumn = keyof typeof SORTED_BY

type FleetColumn = [
  name: SortColumn | 'problem',
  cell: (account: Account) => ComponentChildren,
  all: string,
  own?: string,
]

export function useFleetColumns(charts: Map<string, Charts>): FleetColumn[] {
  const { number, percent, signed } = useLocalized()
  return [
    ['state', ({ status }) => <StatusLabel status={status} />, 'col-state'],
    ['account', (account) => <Name account={account} />, ''],
    ['problem', (account) => <WorstProblem account={account} />, 'wide-only', 'col-problem'],
    ['deliveries', (account) => <Deliveries account={account} charts={charts.get(account.id)} />, 'numeric'],
    ['lastDelivery', ({ lastDeliveryAt }) => <Time at={lastDeliveryAt} />, 'numeric medium-only'],
    [
      'followers',
      (account) => <Followers account={account} charts={charts.get(account.id)} />,
      'numeric medium-only',
    ],
    [
      'growth',
      ({ growth7d }) => (
        <span class={trendOf(growth7d ?? 0)}>{growth7d === null ? '–' : signed(growth7d)}</span>
      ),
      'numeric medium-only',
    ],
    ['unapplied', ({ unapplied }) => <Count value={unapplied} max={COUNTED_MAX} />, 'numeric extra-only'],
    [
      'waiting',
      ({ endpointsPending, endpointsFailed }) => (
        <>
          <Count value={endpointsPending} max={COUNTED_MAX} />
          {endpointsFailed > 0 && <span class="bad-text"> +{number(endpointsFailed)} ✕</span>}
        </>
      ),
      'numeric extra-only',
    ],
    [
      'quota',
      (account) => {
        const share = quotaShare(account)
        return share === null ? (
          <span class="muted">–</span>
        ) : (
          <span class={share >= 1 ? 'bad-text' : ''}>{percent(share)}</span>
        )
      },
      'numeric extra-only',
    ],
  ]
}

const trendOf = (growth: number) => (growth > 0 ? 'good-text' : growth < 0 ? 'bad-text' : 'muted')

/** The label of the worst problem, and how many more there are. */
function useProblem({ problem, problemCount }: Account) {
  const { t } = useLocalized()
  const reasonOf = useReason()
  const further = problemCount > 1 ? fill(t.fleet.more, { count: String(problemCount - 1) }) : ''
  return { ...(problem && reasonOf(problem)), further }
}

/** Below the name is the worst problem where its column has no room. */
function Name({ account }: { account: Account }) {
  const { t } = useLocalized()
  const { label, further } = useProblem(account)
  const { id, name, basicId, organizationName, status, problem } = account
  const identity = [basicId, organizationName].filter(Boolean).join(' · ')
  return (
    <>
      <Link href={`/accounts/${id}`}>{name}</Link>
      {problem ? (
        <div class="sub">
          <span class="unless-wide">
            {label} {further} <Muted problem={problem} />
          </span>
          <span class="wide-only">{identity}</span>
        </div>
      ) : (
        <div class="sub">
          <span class="narrow-only">{t.statuses[status]}</span>
          <span class="not-narrow">{identity}</span>
        </div>
      )}
    </>
  )
}

function WorstProblem({ account }: { account: Account }) {
  const canManage = useRole('manager')
  const { label, message, further } = useProblem(account)
  const { id, problem } = account
  if (problem === null) return null
  return (
    <span title={message}>
      <Link href={canManage ? fixPath(problem, id) : `/accounts/${id}`}>{label}</Link>
      {further && <span class="muted">{further}</span>} <Muted problem={problem} />
    </span>
  )
}

interface ChartProps {
  account: Account
  /** undefined until they are loaded */
  charts: Charts | undefined
}

function Deliveries({ account: { deliveries24h }, charts }: ChartProps) {
  const { t, number, short } = useLocalized()
  const { hours = [] } = charts ?? {}
  const label = fill(t.fleet.sparkHours, {
    total: number(deliveries24h),
    peak: number(Math.max(0, ...hours)),
  })
  return (
    <span class="with-spark">
      {charts ? <SparkBars values={hours} label={label} /> : <SparkSpace />}
      <b>{short(deliveries24h)}</b>
    </span>
  )
}

function Followers({ account: { following }, charts }: ChartProps) {
  const { t, number, short } = useLocalized()
  const { days = [] } = charts ?? {}
  const counted = days.filter((value) => value !== null)
  const label = fill(t.fleet.sparkDays, {
    first: number(counted[0] ?? 0),
    last: number(counted.at(-1) ?? 0),
  })
  return (
    <span class="with-spark">
      {charts === undefined && <SparkSpace />}
      {counted.length > 1 && <SparkLine values={days} label={label} />}
      <b>{following === null ? '–' : short(following)}</b>
    </span>
  )
}

/** Small charts in a table row, each with a text alternative. Each is one path, because a page has hundreds of them. */
const WIDTH = 96
const HEIGHT = 24

function SparkBars({ values, label }: { values: number[]; label: string }) {
  const peak = Math.max(1, ...values)
  const step = WIDTH / Math.max(1, values.length)
  const bars = values
    .map((value, i) => {
      const height = value === 0 ? 1 : Math.max(2, (value / peak) * HEIGHT)
      return `M${(i * step).toFixed(1)} ${HEIGHT}v${-height.toFixed(1)}h${(step - 1).toFixed(1)}V${HEIGHT}z`
    })
    .join('')
  return (
    <svg class="spark bars" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label={label}>
      <path d={bars} />
    </svg>
  )
}

/** Days without a count are gaps. */
function SparkLine({ values, label }: { values: Array<number | null>; label: string }) {
  const known = values.filter((value) => value !== null)
  const low = Math.min(...known)
  const range = Math.max(1, Math.max(...known) - low)
  const step = WIDTH / Math.max(1, values.length - 1)
  let line = ''
  let isDrawing = false
  for (const [i, value] of values.entries()) {
    if (value === null) isDrawing = false
    else {
      const y = HEIGHT - 2 - ((value - low) / range) * (HEIGHT - 4)
      line += `${isDrawing ? 'L' : 'M'}${(i * step).toFixed(1)} ${y.toFixed(1)}`
      isDrawing = true
    }
  }
  return (
    <svg class="spark line" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label={label}>
      <path d={line} />
    </svg>
  )
}

/** Placeholder of a chart that is not loaded yet, so that the row does not move. */
const SparkSpace = () => <span class="spark" aria-hidden="true" />

/** Accounts of one request. Their ids are in its URL. */
const CHARTS_MAX = 200
const REFRESH_MS = 60_000

/** Loads the charts of the rows that the table shows. Those of its first rows are refreshed. */
export function useFleetCharts(ids: string[]): Map<string, Charts> {
  const [charts, setCharts] = useState(new Map<string, Charts>())
  const load = (wanted: string) => {
    if (wanted === '') return
    // A row is readable without its charts. The next refresh retries.
    read('fleet.charts', null, { ids: wanted }).then(
      (loaded) =>
        setCharts((before) => new Map([...before, ...loaded.charts.map((one) => [one.id, one] as const)])),
      () => undefined,
    )
  }
  const idsOf = (some: string[]) => some.slice(0, CHARTS_MAX).join(',')
  const missing = idsOf(ids.filter((id) => !charts.has(id)))
  useEffect(() => load(missing), [missing])
  useInterval(REFRESH_MS, () => load(idsOf(ids)))
  return charts
}
