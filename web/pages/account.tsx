/** One account: problems with their fixes, setup, figures, endpoints and keys. */
import type { FleetAccount, Problem } from '../../src/watch/account-status.ts'
import type { Json } from '../api.ts'
import { useRead } from '../operations.ts'
import {
  ImportFollowers,
  NewCallbackAddress,
  PointWebhook,
  RemoveAccount,
  VerifyAccount,
} from '../parts/account-actions.tsx'
import { AccountCharts } from '../parts/account-charts.tsx'
import { AccountEndpoints, AccountKeys } from '../parts/account-lists.tsx'
import { type AccountResponse, usesChatOrTracking } from '../parts/account-response.ts'
import { SetUp } from '../parts/account-setup.tsx'
import { ActivityLink } from '../parts/activity.tsx'
import { Icon } from '../parts/icons.tsx'
import { MuteButton, Muted } from '../parts/mute.tsx'
import { Facts, Page, Panel, Tabs } from '../parts/page.tsx'
import { causesOf } from '../parts/problem-causes.ts'
import { fixOf, fixPath } from '../parts/problem-fixes.ts'
import { Loaded } from '../parts/states.tsx'
import { StatusLabel, useReason } from '../parts/status.tsx'
import { ExportEvents } from '../parts/time-range.tsx'
import { Copyable, Count, Time } from '../parts/values.tsx'
import { Verification } from '../parts/verification.tsx'
import { Link } from '../router.tsx'
import { useRole } from '../session.ts'
import { fill, useLocalized } from '../texts.ts'
import { Audience } from './audience.tsx'

const REFRESH_MS = 15_000
/** Problems that an unreachable PUBLIC_URL may cause. */
const UNREACHABLE = ['webhook_test_failed', 'never_delivered', 'unusually_quiet', 'silent_for_days']

export function AccountPage({ id, isAudience = false }: { id: string; isAudience?: boolean }) {
  const { t } = useLocalized()
  const account = useRead('account.show', id, {}, REFRESH_MS)
  const { data } = account
  const canManage = useRole('manager')
  const path = `/accounts/${id}`
  return (
    <Page
      title={data?.facts.name ?? `${t.common.account} ${id}`}
      trail={<Link href="/">{t.nav.fleet}</Link>}
      lead={
        data && (
          <>
            <StatusLabel status={data.facts.status} />{' '}
            {[data.facts.basicId, data.facts.organizationName].filter(Boolean).join(' · ')}
          </>
        )
      }
      actions={
        data && (
          <>
            {data.facts.unapplied > 0 && (
              <Link class="button" href={`/events?account=${id}`}>
                {t.account.openEvents}
              </Link>
            )}
            <ExportEvents id={id} />
            {canManage && (
              <Link class="button" href={`${path}/edit`}>
                {t.manage.edit}
              </Link>
            )}
          </>
        )
      }
    >
      <Tabs
        label={t.common.account}
        items={[
          [path, t.account.overview],
          [`${path}/audience`, t.audience.title],
        ]}
      />
      <Loaded query={account}>
        {(loaded) =>
          isAudience ? <Audience account={id} /> : <Overview {...loaded} reload={account.reload} />
        }
      </Loaded>
    </Page>
  )
}

function Overview({ reload, ...data }: AccountResponse & { reload: () => void }) {
  const { account, facts } = data
  const { id } = account
  return (
    <>
      <Health facts={facts} onFixed={reload} />
      <SetUp {...data} onChange={reload} />
      <Verification {...data} onChange={reload} />
      <Figures facts={facts} />
      <AccountCharts id={id} />
      <AccountEndpoints id={id} />
      <AccountKeys id={id} />
      <Identity account={account} facts={facts} />
      <ActivityLink kind="account" id={id} />
    </>
  )
}

function Health({ facts: { id, problems }, onFixed }: { facts: Json<FleetAccount>; onFixed: () => void }) {
  const { t, dateTime } = useLocalized()
  const canManage = useRole('manager')
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
      {causesOf(problems).map(({ problem, consequences }, index) => {
        const { label, message, fix } = reasonOf(problem)
        const { muted } = problem
        return (
          <div key={problem.reason} class={`problem-card ${problem.status}`}>
            <h2>
              <StatusLabel status={problem.status} /> {label} <Muted problem={problem} />
            </h2>
            <p>{message}</p>
            {muted && <p>{fill(t.mute.mutedUntil, { time: dateTime(muted.until), reason: muted.reason })}</p>}
            <p class="fix">
              <b>{t.account.fix}:</b> {fix}
            </p>
            {consequences.length > 0 && (
              <>
                <p class="muted">{t.account.consequences}</p>
                <ul class="consequences">
                  {consequences.map((each) => (
                    <li key={each.reason}>
                      <b>{reasonOf(each).label}:</b> {reasonOf(each).message}
                    </li>
                  ))}
                </ul>
              </>
            )}
            <div class="actions">
              {canManage && <FixButton problem={problem} id={id} onDone={onFixed} />}
              {canManage && index === 0 && <MuteButton problem={problem} id={id} onDone={onFixed} />}
              {UNREACHABLE.includes(problem.reason) && (
                <Link href="/settings/system">{t.reachability.title}</Link>
              )}
            </div>
          </div>
        )
      })}
    </section>
  )
}

function Figures({ facts }: { facts: Json<FleetAccount> }) {
  const { t, signed, number } = useLocalized()
  const { quotaLimit, quotaUsed, growth7d } = facts
  const quota =
    quotaLimit === null || quotaUsed === null
      ? '–'
      : fill(t.account.quotaOf, { used: number(quotaUsed), limit: number(quotaLimit) })
  return (
    <Panel title={t.account.figures}>
      <h3>{t.account.people}</h3>
      <Facts
        items={[
          [t.account.members, <Count key="m" value={facts.members} />],
          [t.account.following, <Count key="f" value={facts.following} />],
          [t.account.blocked, <Count key="b" value={facts.blocked} />],
          [t.account.growth, growth7d === null ? '–' : signed(growth7d)],
          [t.account.profilesDue, <Count key="p" value={facts.profilesDue} />],
        ]}
      />
      <h3>{t.account.traffic}</h3>
      <Facts
        items={[
          [t.account.lastDelivery, <Time key="l" at={facts.lastDeliveryAt} />],
          [t.account.deliveries24h, <Count key="d" value={facts.deliveries24h} />],
          [t.account.events24h, <Count key="e" value={facts.events24h} />],
          [t.account.refused, <Count key="r" value={facts.refused} />],
        ]}
      />
      <h3>{t.account.atLine}</h3>
      <Facts
        items={[
          [t.account.quota, quota],
          [
            t.account.tokenExpires,
            facts.tokenExpiresAt === null ? '–' : <Time key="t" at={facts.tokenExpiresAt} />,
          ],
        ]}
      />
    </Panel>
  )
}

function Identity({ account, facts }: Pick<AccountResponse, 'account' | 'facts'>) {
  const { t } = useLocalized()
  const canManage = useRole('manager')
  const stored = (isStored: boolean) => (isStored ? t.account.stored : t.account.missing)
  return (
    <Panel
      title={t.account.identity}
      actions={canManage && <RemoveAccount id={account.id} name={account.name} />}
    >
      <Facts
        items={[
          [t.account.organization, facts.organizationName],
          [t.common.account, account.id],
          [t.account.channelId, account.channelId],
          [t.account.botUserId, account.botUserId],
          [t.account.basicId, account.basicId],
          [t.manage.fields.channelSecret, stored(account.hasChannelSecret)],
          [t.manage.fields.channelAccessToken, stored(account.hasChannelAccessToken)],
        ]}
      />
      <details open={usesChatOrTracking(account)}>
        <summary>{t.manage.chatAndTracking}</summary>
        <Facts
          items={[
            [t.manage.fields.chatSecret, stored(account.hasChatSecret)],
            [t.manage.fields.chatInboxId, account.chatInboxId],
            [t.manage.fields.loginChannelIds, account.loginChannelIds.join(', ')],
            [
              t.account.trackingKey,
              <Copyable key="k" text={account.trackingKey} label={t.account.trackingKey} />,
            ],
          ]}
        />
        {canManage && <NewCallbackAddress id={account.id} />}
      </details>
    </Panel>
  )
}

/** @param onDone reloads the problems */
function FixButton({ problem, id, onDone }: { problem: Problem; id: string; onDone: () => void }) {
  const { t } = useLocalized()
  const fix = fixOf(problem)
  switch (fix?.kind) {
    case undefined:
      return null
    case 'webhook':
      return <PointWebhook id={id} onDone={onDone} />
    case 'verify':
      return <VerifyAccount id={id} testWebhook={fix.testWebhook} onDone={onDone} />
    case 'followers':
      return <ImportFollowers id={id} />
    default:
      return (
        <Link class="button" href={fixPath(problem, id)}>
          {fix?.kind === 'edit'
            ? fill(t.manage.fixField, { field: t.manage.fields[fix.field] })
            : t.manage.fixPages[fix?.kind ?? 'events']}
        </Link>
      )
  }
}
