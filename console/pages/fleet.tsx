/** All accounts in one dense table, the worst first. */
import { useMemo, useState } from 'preact/hooks'
import type { AccountWord } from '../../src/operator/account-status.ts'
import type { FleetAccount } from '../../src/operator/fleet.ts'
import type { Json } from '../api.ts'
import { useQuery } from '../hooks.ts'
import { COUNTED_MAX } from '../parts/endpoint-table.tsx'
import { Page } from '../parts/page.tsx'
import { compareBy, type Order, SortHeader } from '../parts/sort.tsx'
import { SparkBars, SparkLine } from '../parts/spark.tsx'
import { Empty, Failure, Loading } from '../parts/states.tsx'
import { Copyable, Count, Time } from '../parts/values.tsx'
import { useRowWindow } from '../parts/window.ts'
import { useReason, Word } from '../parts/word.tsx'
import { Link, replaceQuery, usePlace } from '../router.tsx'
import { useLocalized } from '../texts.ts'

type Account = Json<FleetAccount>

const REFRESH_MS = 30_000
const WORDS: AccountWord[] = ['broken', 'degraded', 'quiet', 'ok']

/** How a click on a header orders the table. */
const COLUMNS = {
  state: ({ word }: Account) => -WORDS.indexOf(word),
  account: ({ name }: Account) => name,
  deliveries: ({ deliveries24h }: Account) => deliveries24h,
  lastDelivery: ({ lastDeliveryAt }: Account) => lastDeliveryAt,
  followers: ({ following }: Account) => following,
  growth: ({ growth7d }: Account) => growth7d,
  unapplied: ({ unapplied }: Account) => unapplied,
  waiting: ({ endpointsPending, endpointsFailed }: Account) => endpointsPending + endpointsFailed,
  quota: (account: Account) => quotaShare(account),
}
type Column = keyof typeof COLUMNS

const quotaShare = ({ quotaLimit, quotaUsed }: Account) =>
  quotaLimit === null || quotaLimit === 0 || quotaUsed === null ? null : quotaUsed / quotaLimit

export function FleetPage() {
  const { t, number, clock } = useLocalized()
  const { data, error, isLoading, reload } = useQuery<{ accounts: Account[] }>('/api/fleet', REFRESH_MS)
  const { query } = usePlace()
  const text = query.get('q') ?? ''
  const word = query.get('state')
  const accounts = data?.accounts
  const matching = useMemo(() => search(accounts ?? [], text), [accounts, text])
  return (
    <Page
      title={t.fleet.title}
      lead={accounts && accounts.length > 0 ? t.fleet.lead(number(accounts.length)) : undefined}
      actions={
        accounts && <span class="muted small-text">{t.fleet.updated(clock(new Date().toISOString()))}</span>
      }
    >
      {error && <Failure error={error} retry={reload} />}
      {isLoading && <Loading />}
      {accounts?.length === 0 && (
        <Empty title={t.fleet.empty}>
          <p>{t.fleet.emptyHelp}</p>
          <Copyable text={t.fleet.emptyCommand} label={t.common.account} />
        </Empty>
      )}
      {accounts !== undefined && accounts.length > 0 && (
        <>
          <Filters text={text} word={word} accounts={matching} />
          <FleetTable
            accounts={word === null ? matching : matching.filter((account) => account.word === word)}
          />
        </>
      )}
    </Page>
  )
}

function search(accounts: Account[], text: string): Account[] {
  const wanted = text.trim().toLowerCase()
  if (wanted === '') return accounts
  return accounts.filter(({ id, name, basicId, organizationName }) =>
    [id, name, basicId ?? '', organizationName].some((value) => value.toLowerCase().includes(wanted)),
  )
}

function Filters({ text, word, accounts }: { text: string; word: string | null; accounts: Account[] }) {
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
      <fieldset class="chips">
        <legend class="visually-hidden">{t.fleet.states}</legend>
        <button type="button" aria-pressed={word === null} onClick={() => replaceQuery({ state: null })}>
          {t.common.all} <b>{number(accounts.length)}</b>
        </button>
        {WORDS.map((name) => (
          <button
            key={name}
            type="button"
            aria-pressed={word === name}
            onClick={() => replaceQuery({ state: word === name ? null : name })}
          >
            <Word word={name} /> <b>{number(accounts.filter((account) => account.word === name).length)}</b>
          </button>
        ))}
      </fieldset>
    </div>
  )
}

function FleetTable({ accounts }: { accounts: Account[] }) {
  const { t } = useLocalized()
  const [order, setOrder] = useState<Order<Column>>({ column: 'state', isDescending: true })
  const sorted = useMemo(
    () => accounts.toSorted(compareBy<Account>(COLUMNS[order.column], order.isDescending)),
    [accounts, order],
  )
  const { body, first, last, above, below } = useRowWindow(sorted.length)
  if (accounts.length === 0) return <Empty title={t.fleet.noMatch}>{t.fleet.noMatchHelp}</Empty>
  const sort = { order, onSort: setOrder }
  return (
    <div class="table-frame">
      <table class="fleet" aria-rowcount={sorted.length + 1}>
        <thead>
          <tr>
            <SortHeader column="state" {...sort} class="col-state">
              {t.fleet.state}
            </SortHeader>
            <SortHeader column="account" {...sort}>
              {t.fleet.account}
            </SortHeader>
            <th scope="col" class="wide-only">
              {t.fleet.problem}
            </th>
            <SortHeader column="deliveries" {...sort} class="numeric">
              {t.fleet.deliveries}
            </SortHeader>
            <SortHeader column="lastDelivery" {...sort} class="numeric medium-only">
              {t.fleet.lastDelivery}
            </SortHeader>
            <SortHeader column="followers" {...sort} class="numeric medium-only">
              {t.fleet.followers}
            </SortHeader>
            <SortHeader column="growth" {...sort} class="numeric medium-only">
              {t.fleet.growth}
            </SortHeader>
            <SortHeader column="unapplied" {...sort} class="numeric extra-only">
              {t.fleet.unapplied}
            </SortHeader>
            <SortHeader column="waiting" {...sort} class="numeric extra-only">
              {t.fleet.waiting}
            </SortHeader>
            <SortHeader column="quota" {...sort} class="numeric extra-only">
              {t.fleet.quota}
            </SortHeader>
          </tr>
        </thead>
        <tbody ref={body}>
          {above > 0 && <Gap height={above} />}
          {sorted.slice(first, last).map((account, i) => (
            <Row key={account.id} account={account} index={first + i + 2} />
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

function Row({ account, index }: { account: Account; index: number }) {
  const { t } = useLocalized()
  const reasonOf = useReason()
  const { id, name, basicId, organizationName, word, problems } = account
  const [problem] = problems
  const label = problem && reasonOf(problem).label
  return (
    <tr aria-rowindex={index}>
      <td class="col-state">
        <Word word={word} />
      </td>
      <th scope="row" class="col-account">
        <Link href={`/accounts/${id}`}>{name}</Link>
        <div class="sub">
          <span class="narrow-only">{label ?? t.words[word]}</span>
          <span class="not-narrow">{[basicId, organizationName].filter(Boolean).join(' · ')}</span>
        </div>
      </th>
      <td class="wide-only col-problem">
        {problem && (
          <span title={problem.message}>
            <span>{label}</span>
            {problems.length > 1 && <span class="muted">{t.fleet.more(String(problems.length - 1))}</span>}
          </span>
        )}
      </td>
      <TrafficCells account={account} />
      <BacklogCells account={account} />
    </tr>
  )
}

function TrafficCells({ account }: { account: Account }) {
  const { t, number, short, signed } = useLocalized()
  const { deliveries24h, hours, days, following, growth7d } = account
  const counted = days.filter((value) => value !== null)
  const hoursLabel = t.fleet.sparkHours(number(deliveries24h), number(Math.max(0, ...hours)))
  const daysLabel = t.fleet.sparkDays(number(counted[0] ?? 0), number(counted.at(-1) ?? 0))
  return (
    <>
      <td class="numeric">
        <span class="with-spark">
          {hours.length > 0 && <SparkBars values={hours} label={hoursLabel} />}
          <b>{short(deliveries24h)}</b>
        </span>
      </td>
      <td class="numeric medium-only">
        <Time at={account.lastDeliveryAt} />
      </td>
      <td class="numeric medium-only">
        <span class="with-spark">
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
