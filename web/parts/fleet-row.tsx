import type { FleetCharts, FleetRow as Row } from '../../src/watch/fleet.ts'
import type { Json } from '../api.ts'
import { Link } from '../router.tsx'
import { useRole } from '../session.ts'
import { fill, useLocalized } from '../texts.ts'
import { COUNTED_MAX } from './endpoint-table.tsx'
import { fixPath } from './problem-fixes.ts'
import { StatusLabel, useReason } from './status.tsx'
import { Count, Time } from './values.tsx'

type Account = Json<Row>
type Charts = Json<FleetCharts> | undefined

/** Returns the used fraction of the month's message quota, or null if LINE sets no limit. */
export const quotaShare = ({ quotaLimit, quotaUsed }: Account) =>
  quotaLimit === null || quotaLimit === 0 || quotaUsed === null ? null : quotaUsed / quotaLimit

/** @param props.charts undefined until they are loaded */
export function FleetRow({ account, charts, index }: { account: Account; charts: Charts; index: number }) {
  const { t } = useLocalized()
  const canManage = useRole('manager')
  const { id, name, basicId, organizationName, status, problem, problemCount } = account
  const reasonOf = useReason()
  const explained = problem && reasonOf(problem)
  const label = explained?.label
  const further = problemCount > 1 ? fill(t.fleet.more, { count: String(problemCount - 1) }) : ''
  const identity = [basicId, organizationName].filter(Boolean).join(' · ')
  return (
    <tr aria-rowindex={index}>
      <td class="col-state">
        <StatusLabel status={status} />
      </td>
      <th scope="row" class="col-account">
        <Link href={`/accounts/${id}`}>{name}</Link>
        {problem ? (
          <div class="sub">
            <span class="unless-wide">
              {label} {further}
            </span>
            <span class="wide-only">{identity}</span>
          </div>
        ) : (
          <div class="sub">
            <span class="narrow-only">{t.statuses[status]}</span>
            <span class="not-narrow">{identity}</span>
          </div>
        )}
      </th>
      <td class="wide-only col-problem">
        {problem && explained && (
          <span title={explained.message}>
            <Link href={canManage ? fixPath(problem, id) : `/accounts/${id}`}>{label}</Link>
            {further && <span class="muted">{further}</span>}
          </span>
        )}
      </td>
      <TrafficCells account={account} charts={charts} />
      <BacklogCells account={account} />
    </tr>
  )
}

function TrafficCells({ account, charts }: { account: Account; charts: Charts }) {
  const { t, number, short, signed } = useLocalized()
  const { deliveries24h, following, growth7d } = account
  const { hours = [], days = [] } = charts ?? {}
  const counted = days.filter((value) => value !== null)
  const hoursLabel = fill(t.fleet.sparkHours, {
    total: number(deliveries24h),
    peak: number(Math.max(0, ...hours)),
  })
  const daysLabel = fill(t.fleet.sparkDays, {
    first: number(counted[0] ?? 0),
    last: number(counted.at(-1) ?? 0),
  })
  return (
    <>
      <td class="numeric">
        <span class="with-spark">
          {charts ? <SparkBars values={hours} label={hoursLabel} /> : <SparkSpace />}
          <b>{short(deliveries24h)}</b>
        </span>
      </td>
      <td class="numeric medium-only">
        <Time at={account.lastDeliveryAt} />
      </td>
      <td class="numeric medium-only">
        <span class="with-spark">
          {charts === undefined && <SparkSpace />}
          {counted.length > 1 && <SparkLine values={days} label={daysLabel} />}
          <b>{following === null ? '–' : short(following)}</b>
        </span>
      </td>
      <td class="numeric medium-only">
        <span class={trendOf(growth7d ?? 0)}>{growth7d === null ? '–' : signed(growth7d)}</span>
      </td>
    </>
  )
}

function BacklogCells({ account }: { account: Account }) {
  const { number, percent } = useLocalized()
  const { unapplied, endpointsPending, endpointsFailed } = account
  const share = quotaShare(account)
  return (
    <>
      <td class="numeric extra-only">
        <Count value={unapplied} max={COUNTED_MAX} />
      </td>
      <td class="numeric extra-only">
        <Count value={endpointsPending} max={COUNTED_MAX} />
        {endpointsFailed > 0 && <span class="failed-count"> +{number(endpointsFailed)} ✕</span>}
      </td>
      <td class="numeric extra-only">
        <span class={share === null ? 'muted' : share >= 1 ? 'bad-text' : ''}>
          {share === null ? '–' : percent(share)}
        </span>
      </td>
    </>
  )
}

const trendOf = (growth: number) => (growth > 0 ? 'good-text' : growth < 0 ? 'bad-text' : 'muted')

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
