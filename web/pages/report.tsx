/** How many people followed and left, beside the same number of days before, and where they came from. */
import { useState } from 'preact/hooks'
import { lineDay, type Period } from '../../src/line-api/line-day.ts'
import { type ReportRow as Row, reportCsv } from '../../src/watch/report-rows.ts'
import { serverNowMs } from '../clock.ts'
import { type Result, useItems, useRead } from '../operations.ts'
import { DownloadButton } from '../parts/downloads.tsx'
import { AccountFilter, Chips, ChoiceFilter } from '../parts/filters.tsx'
import { TextField } from '../parts/form.tsx'
import { Page, Panel } from '../parts/page.tsx'
import { ReportChart, type ReportRow } from '../parts/report-chart.tsx'
import { PERIODS, type PeriodName, periodOf } from '../parts/report-period.ts'
import { Loaded, More } from '../parts/states.tsx'
import { type Column, type Sort, Table, useSorted } from '../parts/table.tsx'
import { Count } from '../parts/values.tsx'
import { accountOf, Link, replaceQuery } from '../router.tsx'
import { fill, useLocalized } from '../texts.ts'

type Shown = Result<'report.show'>
type Figure = 'newFollowers' | 'returns' | 'blocks' | 'net' | 'followers' | 'blockedWithin7Days'
type Scope = { account: string | null; organization: string | null }

const CARDS: Figure[] = ['newFollowers', 'blocks', 'net', 'followers', 'blockedWithin7Days']
const ROWS = 20

export function ReportPage({ query }: { query: URLSearchParams }) {
  const { t, date } = useLocalized()
  const name = PERIODS.find((each) => each === query.get('period')) ?? 'last28'
  const today = lineDay(serverNowMs())
  const given = { from: query.get('from') ?? today, to: query.get('to') ?? today }
  const period = periodOf(name, today, given)
  const scope = { account: accountOf(query), organization: query.get('organization') }
  const total = useRead('report.show', null, { ...period, ...scope, by: 'total' })
  const completeFrom = total.data?.completeFrom ?? null
  return (
    <Page
      title={t.report.title}
      lead={fill(t.report.lead, { from: date(period.from), to: date(period.to) })}
      actions={
        <button type="button" onClick={() => print()}>
          {t.report.print}
        </button>
      }
    >
      <Filters name={name} given={period} scope={scope} />
      <Loaded query={total}>
        {({ rows: [row] }) => row && <Cards row={row} completeFrom={completeFrom} />}
      </Loaded>
      <ReportChart period={period} scope={scope} />
      {/* Not all at the same time: each reads all accounts. */}
      {total.data && (
        <>
          <Groups period={period} scope={scope} completeFrom={completeFrom} />
          <Sources period={period} scope={scope} />
        </>
      )}
      <Definitions completeFrom={completeFrom} />
    </Page>
  )
}

function Filters({ name, given, scope }: { name: PeriodName; given: Period; scope: Scope }) {
  const { t } = useLocalized()
  const organizations = useItems('organization.list')
  return (
    <div class="filters">
      <ChoiceFilter
        name="period"
        label={t.report.period}
        value={name}
        options={PERIODS.map((each) => [each, t.report.periods[each]])}
        // Own days begin with those that were shown.
        onChoose={(period) =>
          replaceQuery({ period, ...(period === 'days' ? given : { from: null, to: null }) })
        }
      />
      {name === 'days' &&
        (['from', 'to'] as const).map((end) => (
          <TextField
            key={end}
            name={end}
            type="date"
            label={t.activity[end]}
            value={given[end]}
            onChange={(day) => replaceQuery({ [end]: day })}
          />
        ))}
      {(organizations.items.length > 1 || scope.organization !== null) && (
        <ChoiceFilter
          name="organization"
          label={t.account.organization}
          value={scope.organization}
          options={[['', t.common.all], ...organizations.items.map((each) => [each.id, each.name] as const)]}
          onChoose={(organization) => replaceQuery({ organization, account: null })}
        />
      )}
      <AccountFilter account={scope.account} clears={['organization']} />
    </div>
  )
}

function useSince(completeFrom: string | null): string {
  const { t, date } = useLocalized()
  return completeFrom === null
    ? t.report.notCounted
    : fill(t.report.completeFrom, { day: date(completeFrom) })
}

/** What a figure counts, and since when. */
function useExplanation(completeFrom: string | null) {
  const { t } = useLocalized()
  const since = useSince(completeFrom)
  return (figure: keyof typeof t.report.definitions) => `${t.report.definitions[figure]} ${since}`
}

function Cards({ row, completeFrom }: { row: ReportRow; completeFrom: string | null }) {
  const { t } = useLocalized()
  const explanation = useExplanation(completeFrom)
  return (
    <dl class="cards">
      {CARDS.map((figure) => (
        <div key={figure} title={explanation(figure)}>
          <dt>{t.report.figures[figure]}</dt>
          <dd>
            <b>
              <Count value={row[figure]} />
            </b>{' '}
            <Change row={row} figure={figure} />
          </dd>
        </div>
      ))}
    </dl>
  )
}

/** The difference to the period before. */
function Change({ row, figure }: { row: ReportRow; figure: Figure }) {
  const { t, number, signed, percent } = useLocalized()
  const [value, earlier] = [row[figure], row.previous?.[figure] ?? null]
  if (value === null || earlier === null) return null
  const share = earlier > 0 ? ` (${percent((value - earlier) / earlier)})` : ''
  return (
    <span class="muted" title={fill(t.report.before, { count: number(earlier) })}>
      {signed(value - earlier)}
      {share}
    </span>
  )
}

const FIGURES: Figure[] = ['newFollowers', 'returns', 'blocks', 'net', 'followers', 'blockedWithin7Days']
const SORTED_BY = {
  name: ({ name = '' }) => name,
  change: (row) => changeOf(row),
  ...valuesOf(FIGURES),
} satisfies Record<string, (row: ReportRow) => number | string | null>

/** By which the columns of figures sort. */
function valuesOf<F extends keyof ReportRow & (Figure | 'stillFollowing' | 'active')>(figures: readonly F[]) {
  const values = figures.map((figure) => [figure, (row: ReportRow) => row[figure] ?? null])
  return Object.fromEntries(values) as Record<F, (row: ReportRow) => number | null>
}

const columnOf = (
  figure: Figure | 'stillFollowing' | 'active',
  label: string,
  title: string,
  sort: Sort,
): Column<ReportRow> => [
  <span key={figure} title={title}>
    {label}
  </span>,
  (row) => <Count value={row[figure] ?? null} />,
  'numeric',
  '',
  sort,
]

/** The growth of the increase. */
const changeOf = ({ net, previous }: ReportRow): number | null =>
  net === null || previous === null || previous.net === null ? null : net - previous.net

/** Accounts or organizations. An account alone has no table. */
function Groups({
  period,
  scope,
  completeFrom,
}: {
  period: Period
  scope: Scope
  completeFrom: string | null
}) {
  const { t } = useLocalized()
  const [by, setBy] = useState<'account' | 'organization'>('account')
  const report = useRead('report.show', null, scope.account === null ? { ...period, ...scope, by } : null)
  if (scope.account !== null) return null
  return (
    <Panel
      title={t.report.groups[by]}
      actions={
        <>
          {scope.organization === null && (
            <Chips label={t.report.rows}>
              {(['account', 'organization'] as const).map((each) => (
                <button key={each} type="button" aria-pressed={by === each} onClick={() => setBy(each)}>
                  {t.report.groups[each]}
                </button>
              ))}
            </Chips>
          )}
          <Downloads report={report.data} name={`report-${by}`} />
        </>
      }
    >
      <Loaded query={report}>{({ rows }) => <GroupTable rows={rows} completeFrom={completeFrom} />}</Loaded>
    </Panel>
  )
}

function GroupTable({ rows, completeFrom }: { rows: ReportRow[]; completeFrom: string | null }) {
  const { t, signed } = useLocalized()
  const [count, setCount] = useState(ROWS)
  const { sorted, sortOf } = useSorted<ReportRow, keyof typeof SORTED_BY>(rows, SORTED_BY, 'newFollowers')
  const explanation = useExplanation(completeFrom)
  const columns: Array<Column<ReportRow>> = [
    [t.report.name, (row) => <Name row={row} />, '', '', sortOf('name')],
    ...FIGURES.map((figure) =>
      columnOf(figure, t.report.figures[figure], explanation(figure), sortOf(figure)),
    ),
    [
      t.report.change,
      (row) => {
        const change = changeOf(row)
        return change === null ? '–' : signed(change)
      },
      'numeric',
      '',
      sortOf('change'),
    ],
  ]
  return (
    <>
      <Table
        rows={sorted.slice(0, count)}
        columns={columns}
        keyOf={({ accountId, organizationId }) => accountId ?? organizationId ?? ''}
      />
      <More
        list={{ hasMore: count < sorted.length, isLoading: false, more: () => setCount(count + ROWS * 10) }}
      />
    </>
  )
}

function Name({ row: { accountId, name } }: { row: ReportRow }) {
  return accountId === undefined ? <span>{name}</span> : <Link href={`/accounts/${accountId}`}>{name}</Link>
}

const OF_SOURCE = ['newFollowers', 'stillFollowing', 'blockedWithin7Days', 'active'] as const

const SOURCES_SORTED_BY = valuesOf(OF_SOURCE)

function Sources({ period, scope }: { period: Period; scope: Scope }) {
  const { t } = useLocalized()
  const report = useRead('report.show', null, { ...period, ...scope, by: 'source' })
  return (
    <Panel title={t.report.sources} actions={<Downloads report={report.data} name="report-source" />}>
      <Loaded query={report}>
        {({ rows }) =>
          rows.length <= 1 ? <p class="muted">{t.report.noSources}</p> : <SourceTable rows={rows} />
        }
      </Loaded>
    </Panel>
  )
}

function SourceTable({ rows }: { rows: ReportRow[] }) {
  const { t } = useLocalized()
  const [count, setCount] = useState(ROWS)
  const { sorted, sortOf } = useSorted(rows, SOURCES_SORTED_BY, 'newFollowers')
  return (
    <>
      <Table
        rows={sorted.slice(0, count)}
        keyOf={({ source }) => source ?? ''}
        columns={[
          [t.audience.fields.source, ({ source }) => source ?? <i>{t.report.unnamed}</i>],
          ...OF_SOURCE.map((figure) =>
            columnOf(figure, t.report.figures[figure], t.report.definitions[figure], sortOf(figure)),
          ),
        ]}
      />
      <More list={{ hasMore: count < rows.length, isLoading: false, more: () => setCount(count + ROWS) }} />
    </>
  )
}

function Downloads({ report, name }: { report: Shown | undefined; name: string }) {
  if (report === undefined) return null
  const file = `${name}-${report.from}-${report.to}`
  const csv = () => reportCsv({ ...report, rows: report.rows as unknown as Row[] })
  return (
    <>
      <DownloadButton label="CSV" file={`${file}.csv`} type="text/csv" textOf={csv} />
      <DownloadButton
        label="JSON"
        file={`${file}.json`}
        type="application/json"
        textOf={() => JSON.stringify(report)}
      />
    </>
  )
}

/** For paper and phones, where nothing hovers. */
function Definitions({ completeFrom }: { completeFrom: string | null }) {
  const { t } = useLocalized()
  const since = useSince(completeFrom)
  return (
    <details class="definitions">
      <summary>{t.report.whatCounts}</summary>
      <dl>
        {Object.entries(t.report.definitions).map(([figure, text]) => (
          <div key={figure}>
            <dt>{t.report.figures[figure as keyof typeof t.report.figures]}</dt>
            <dd>{text}</dd>
          </div>
        ))}
      </dl>
      <p>{since}</p>
    </details>
  )
}
