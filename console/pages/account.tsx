/** One account: what is wrong and how to fix it, its set-up, its figures, endpoints and keys. */
import { useMemo } from 'preact/hooks'
import type { Verification } from '../../src/accounts/verification.ts'
import type { AccountDetails } from '../../src/operator/accounts.ts'
import type { AccountDay, DeliveryHour, FleetAccount } from '../../src/operator/fleet.ts'
import { type Json, post } from '../api.ts'
import { type Query, useAction, useQuery } from '../hooks.ts'
import { AccountEndpoints, AccountKeys } from '../parts/account-lists.tsx'
import { Chart, type Series } from '../parts/chart.tsx'
import { Icon } from '../parts/icons.tsx'
import { Facts, Page, Panel } from '../parts/page.tsx'
import { ActionFailure, Failure, Loading } from '../parts/states.tsx'
import { Copyable, Count, Time } from '../parts/values.tsx'
import { useReason, Word } from '../parts/word.tsx'
import { Link } from '../router.tsx'
import { useLocalized } from '../texts.ts'

interface Answer {
  account: Omit<Json<AccountDetails>, 'oaHash'>
  verification: Verification | null
  facts: Json<FleetAccount>
  webhookPath: string
  publicUrl: string | null
}

const REFRESH_MS = 15_000

export function AccountPage({ id }: { id: string }) {
  const { t } = useLocalized()
  const account = useQuery<Answer>(`/api/accounts/${id}`, REFRESH_MS)
  const { data, error, reload } = account
  const trail = <Link href="/">{t.nav.fleet}</Link>
  if (data === undefined) {
    return (
      <Page title={`${t.common.account} ${id}`} trail={trail}>
        {error ? <Failure error={error} retry={reload} /> : <Loading />}
      </Page>
    )
  }
  const { facts } = data
  return (
    <Page
      title={facts.name}
      trail={trail}
      lead={
        <>
          <Word word={facts.word} /> {[facts.basicId, facts.organizationName].filter(Boolean).join(' · ')}
        </>
      }
      actions={
        <>
          <Link class="button" href={`/audience/${id}`}>
            {t.account.openAudience}
          </Link>
          {facts.unapplied > 0 && (
            <Link class="button" href={`/events?account=${id}`}>
              {t.account.openEvents}
            </Link>
          )}
        </>
      }
    >
      <Health facts={facts} />
      <div class="columns">
        <SetUp query={account} />
        <Figures facts={facts} />
      </div>
      <Charts id={id} />
      <AccountEndpoints id={id} />
      <AccountKeys id={id} />
      <Identity account={data.account} facts={facts} />
    </Page>
  )
}

function Health({ facts: { problems } }: { facts: Json<FleetAccount> }) {
  const { t } = useLocalized()
  const reasonOf = useReason()
  if (problems.length === 0) {
    return (
      <div class="notice good" role="status">
        <Icon name="check" />
        <p>{t.account.allWell}</p>
      </div>
    )
  }
  return (
    <section class="problems" aria-label={t.account.health}>
      {problems.map((problem) => {
        const { label, message, fix } = reasonOf(problem)
        return (
          <div key={problem.reason} class={`problem-card ${problem.word}`}>
            <h2>
              <Word word={problem.word} /> {label}
            </h2>
            <p>{message}</p>
            <p class="fix">
              <b>{t.account.fix}:</b> {fix}
            </p>
          </div>
        )
      })}
    </section>
  )
}

function SetUp({ query: { data, reload } }: { query: Query<Answer> }) {
  const { t, relative } = useLocalized()
  const { isRunning, error, run } = useAction()
  if (data === undefined) return null
  const { account, facts, verification, publicUrl, webhookPath } = data
  const verify = (testWebhook: boolean) =>
    run(async () => {
      await post(`/api/accounts/${account.id}/verify`, { testWebhook })
      reload()
    })
  return (
    <Panel
      title={t.account.setup}
      actions={
        <>
          <button type="button" class="primary" disabled={isRunning} onClick={() => verify(false)}>
            {isRunning ? t.account.verifying : t.account.verify}
          </button>
          <button type="button" disabled={isRunning} onClick={() => verify(true)}>
            {t.account.verifyTest}
          </button>
        </>
      }
    >
      <h3>{t.account.webhookUrl}</h3>
      <Copyable text={`${publicUrl ?? ''}${webhookPath}`} label={t.account.webhookUrl} />
      <p class="muted small-text">{publicUrl === null ? t.account.noPublicUrl : t.account.webhookHint}</p>
      <Steps account={account} facts={facts} verification={verification} />
      <ActionFailure error={error} />
      {verification !== null && (
        <details>
          <summary>
            {t.account.checks} · {relative(verification.checkedAt)}
          </summary>
          <ul class="checks">
            {verification.checks.map(({ name, ok, message }) => (
              <li key={name} class={ok ? 'is-done' : 'is-open'}>
                <Icon name={ok ? 'check' : 'cross'} />
                <span>
                  <b>{name}</b> {message}
                </span>
              </li>
            ))}
          </ul>
        </details>
      )}
    </Panel>
  )
}

function Steps({ account, facts, verification }: Pick<Answer, 'account' | 'facts' | 'verification'>) {
  const { t } = useLocalized()
  const isOk = (name: string) => verification?.checks.find((check) => check.name === name)?.ok === true
  const { steps } = t.account
  const items: Array<[text: string, isDone: boolean]> = [
    [steps.secret, account.hasChannelSecret],
    [steps.token, account.hasChannelAccessToken || (account.channelId !== null && account.hasChannelSecret)],
    [steps.token_ok, isOk('access_token')],
    [steps.endpoint, isOk('webhook_endpoint')],
    [steps.active, isOk('webhook_active')],
    [steps.delivered, facts.lastDeliveryAt !== null],
  ]
  return (
    <ol class="checks">
      {items.map(([text, isDone]) => (
        <li key={text} class={isDone ? 'is-done' : 'is-open'}>
          <Icon name={isDone ? 'check' : 'dot'} />
          <span>{text}</span>
          <span class="visually-hidden">{isDone ? t.account.done : t.account.open}</span>
        </li>
      ))}
    </ol>
  )
}

function Figures({ facts }: { facts: Json<FleetAccount> }) {
  const { t, signed, number } = useLocalized()
  const { quotaLimit, quotaUsed, growth7d } = facts
  const quota =
    quotaLimit === null || quotaUsed === null ? '–' : t.account.quotaOf(number(quotaUsed), number(quotaLimit))
  return (
    <Panel title={t.account.figures}>
      <Facts
        items={[
          [t.account.members, <Count key="m" value={facts.members} />],
          [t.account.following, <Count key="f" value={facts.following} />],
          [t.account.blocked, <Count key="b" value={facts.blocked} />],
          [t.account.growth, growth7d === null ? '–' : signed(growth7d)],
          [t.account.lastDelivery, <Time key="l" at={facts.lastDeliveryAt} />],
          [t.account.deliveries24h, <Count key="d" value={facts.deliveries24h} />],
          [t.account.events24h, <Count key="e" value={facts.events24h} />],
          [t.account.refused, <Count key="r" value={facts.refused} />],
          [t.account.quota, quota],
          [t.account.profilesDue, <Count key="p" value={facts.profilesDue} />],
          [
            t.account.tokenExpires,
            facts.tokenExpiresAt === null ? '–' : <Time key="t" at={facts.tokenExpiresAt} />,
          ],
        ]}
      />
    </Panel>
  )
}

const HOUR_SECONDS = 3_600

function Charts({ id }: { id: string }) {
  const { t } = useLocalized()
  const { data } = useQuery<{ hours: DeliveryHour[]; days: AccountDay[] }>(`/api/accounts/${id}/charts`)
  const { series: names } = t.account
  const hours = useMemo(() => fillHours(data?.hours ?? []), [data])
  const hourSeries = useMemo<Series[]>(
    () => [
      {
        label: names.accepted,
        values: hours.map(([, hour]) => (hour ? hour.deliveries : 0)),
        colour: '--series-1',
        kind: 'bars',
      },
      {
        label: names.refused,
        values: hours.map(([, hour]) => hour?.refused || null),
        colour: '--series-2',
        kind: 'bars',
      },
      {
        label: names.failed,
        values: hours.map(([, hour]) => hour?.failed || null),
        colour: '--series-3',
        kind: 'bars',
      },
    ],
    [hours, names],
  )
  const hourTimes = useMemo(() => hours.map(([time]) => time), [hours])
  const days = data?.days ?? []
  const dayTimes = useMemo(() => days.map(({ day }) => Date.parse(day) / 1000), [data])
  const daySeries = useMemo<Series[]>(
    () => [
      {
        label: names.following,
        values: days.map(({ following }) => following),
        colour: '--series-1',
        kind: 'line',
      },
      {
        label: names.lineFollowers,
        values: days.map(lineFollowing),
        colour: '--series-1',
        kind: 'line',
        isDashed: true,
      },
      {
        label: names.blocked,
        values: days.map(({ blocked }) => blocked),
        colour: '--series-2',
        kind: 'line',
      },
      {
        label: names.lineBlocks,
        values: days.map(({ lineBlocks }) => lineBlocks),
        colour: '--series-2',
        kind: 'line',
        isDashed: true,
      },
    ],
    [data, names],
  )
  if (data === undefined) return null
  return (
    <div class="columns">
      <Panel title={t.account.deliveriesChart}>
        {data.hours.length === 0 ? (
          <p class="muted">{t.account.noHours}</p>
        ) : (
          <Chart title={t.account.deliveriesChart} times={hourTimes} series={hourSeries} />
        )}
      </Panel>
      <Panel title={t.account.followersChart}>
        {days.length < 2 ? (
          <p class="muted">{t.account.noDays}</p>
        ) : (
          <Chart title={t.account.followersChart} times={dayTimes} series={daySeries} hasDays />
        )}
      </Panel>
    </div>
  )
}

/** LINE counts everybody who ever followed, so those who blocked the account are taken off. */
function lineFollowing({ lineFollowers, lineBlocks }: AccountDay): number | null {
  return lineFollowers === null || lineBlocks === null ? null : lineFollowers - lineBlocks
}

/** Every hour from the first to the last, because hours without deliveries are not stored. */
function fillHours(hours: DeliveryHour[]): Array<[seconds: number, hour: DeliveryHour | undefined]> {
  const byTime = new Map(hours.map((hour) => [Date.parse(hour.hour) / 1000, hour]))
  const first = Math.min(...byTime.keys())
  if (!Number.isFinite(first)) return []
  const now = Math.floor(Date.now() / 1000 / HOUR_SECONDS) * HOUR_SECONDS
  const count = Math.min(24 * 7, (now - first) / HOUR_SECONDS + 1)
  return Array.from({ length: count }, (_, i) => {
    const time = now - (count - 1 - i) * HOUR_SECONDS
    return [time, byTime.get(time)]
  })
}

function Identity({ account, facts }: Pick<Answer, 'account' | 'facts'>) {
  const { t } = useLocalized()
  const secret = (name: string, isStored: boolean) =>
    `${name}: ${isStored ? t.account.stored : t.account.missing}`
  return (
    <Panel title={t.account.identity}>
      <Facts
        items={[
          [t.account.organization, facts.organizationName],
          [t.common.account, account.id],
          [t.account.channelId, account.channelId],
          [t.account.botUserId, account.botUserId],
          [t.account.basicId, account.basicId],
          [
            t.account.trackingKey,
            <Copyable key="k" text={account.trackingKey} label={t.account.trackingKey} />,
          ],
          [
            t.account.secrets,
            <ul key="s" class="plain-list">
              <li>{secret(t.account.channelSecret, account.hasChannelSecret)}</li>
              <li>{secret(t.account.accessToken, account.hasChannelAccessToken)}</li>
              <li>{secret(t.account.chatSecret, account.hasChatSecret)}</li>
            </ul>,
          ],
        ]}
      />
    </Panel>
  )
}
