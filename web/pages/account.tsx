/** One account: problems with their fixes, setup, figures, endpoints and keys. */

import type { Problem } from '../../src/watch/account-status.ts'
import type { FleetAccount } from '../../src/watch/fleet.ts'
import type { Json } from '../api.ts'
import { useQuery } from '../hooks.ts'
import {
  ImportFollowers,
  NewCallbackAddress,
  PointWebhook,
  RemoveAccount,
  VerifyAccount,
} from '../parts/account-actions.tsx'
import { AccountCharts } from '../parts/account-charts.tsx'
import { AccountEndpoints, AccountKeys } from '../parts/account-lists.tsx'
import type { AccountResponse } from '../parts/account-response.ts'
import { SetUp } from '../parts/account-setup.tsx'
import { ActivityPanel } from '../parts/activity.tsx'
import { Icon } from '../parts/icons.tsx'
import { Facts, Page, Panel } from '../parts/page.tsx'
import { fixOf, fixPath } from '../parts/problem-fixes.ts'
import {
  type Examination,
  ExamineButton,
  mayBeUnreachable,
  ReachabilityOutcome,
  ReachabilityPanel,
  useExamination,
} from '../parts/reachability.tsx'
import { Loaded } from '../parts/states.tsx'
import { StatusLabel, useReason } from '../parts/status.tsx'
import { ExportEvents } from '../parts/time-range.tsx'
import { Copyable, Count, Time } from '../parts/values.tsx'
import { Link } from '../router.tsx'
import { useRole } from '../session.ts'
import { fill, useLocalized } from '../texts.ts'

const REFRESH_MS = 15_000

export function AccountPage({ id }: { id: string }) {
  const { t } = useLocalized()
  const account = useQuery<AccountResponse>(`/api/accounts/${id}`, REFRESH_MS)
  const { data, reload } = account
  const canManage = useRole('manager')
  const examination = useExamination()
  const trail = <Link href="/">{t.nav.fleet}</Link>
  if (data === undefined) {
    return (
      <Page title={`${t.common.account} ${id}`} trail={trail}>
        <Loaded query={account} />
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
          <StatusLabel status={facts.status} />{' '}
          {[facts.basicId, facts.organizationName].filter(Boolean).join(' · ')}
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
          <ExportEvents id={id} />
          {canManage && (
            <Link class="button" href={`/accounts/${id}/edit`}>
              {t.manage.edit}
            </Link>
          )}
        </>
      }
    >
      <Health facts={facts} examination={examination} onFixed={reload} />
      <div class="columns">
        <SetUp query={account} />
        <Figures facts={facts} />
      </div>
      <ReachabilityPanel examination={examination} account={data.account} onVerified={reload} />
      <AccountCharts id={id} />
      <AccountEndpoints id={id} />
      <AccountKeys id={id} />
      <Identity account={data.account} facts={facts} />
      <ActivityPanel kind="account" id={id} />
    </Page>
  )
}

function Health({
  facts: { id, problems },
  examination,
  onFixed,
}: {
  facts: Json<FleetAccount>
  examination: Examination
  onFixed: () => void
}) {
  const { t } = useLocalized()
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
      {problems.map((problem) => {
        const { label, message, fix } = reasonOf(problem)
        return (
          <div key={problem.reason} class={`problem-card ${problem.status}`}>
            <h2>
              <StatusLabel status={problem.status} /> {label}
            </h2>
            <p>{message}</p>
            <p class="fix">
              <b>{t.account.fix}:</b> {fix}
            </p>
            <div class="actions">
              {canManage && <FixButton problem={problem} id={id} onDone={onFixed} />}
              {mayBeUnreachable(problem.reason) && examination.result === null && (
                <ExamineButton examination={examination} />
              )}
            </div>
            {mayBeUnreachable(problem.reason) && examination.result !== null && (
              <ReachabilityOutcome result={examination.result} />
            )}
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

function Identity({ account, facts }: Pick<AccountResponse, 'account' | 'facts'>) {
  const { t } = useLocalized()
  const canManage = useRole('manager')
  const secret = (name: string, isStored: boolean) =>
    `${name}: ${isStored ? t.account.stored : t.account.missing}`
  return (
    <Panel
      title={t.account.identity}
      actions={
        canManage && (
          <>
            <NewCallbackAddress id={account.id} />
            <RemoveAccount id={account.id} name={account.name} />
          </>
        )
      }
    >
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
