/** Long work of operators: what runs, and how it ended. */
import { useInterval } from '../hooks.ts'
import { useItems, useRead } from '../operations.ts'
import { AccountResults } from '../parts/account-results.tsx'
import { actorOf } from '../parts/activity.tsx'
import { isOver, type Job, JobBar, JobCounts, JobProgress, JobState } from '../parts/job.tsx'
import { type Fact, Facts, Page, Panel } from '../parts/page.tsx'
import { SettingsPage } from '../parts/settings-page.tsx'
import { Empty, ListView, Loaded } from '../parts/states.tsx'
import { Table } from '../parts/table.tsx'
import { Time } from '../parts/values.tsx'
import { Link } from '../router.tsx'
import { fill, stateIn, type Texts, useLocalized } from '../texts.ts'

const REFRESH_MS = 2_000

export function JobsPage() {
  const { t, number } = useLocalized()
  // A removal is not a job of its account, which it deletes.
  const accountsOf = ({ kind, accountName, parameters, total }: Job) =>
    ['members.erase', 'accounts.onboard', 'accounts.change'].includes(kind)
      ? fill(t.jobs.accounts, { count: number(Number(total)) })
      : (accountName ?? (parameters.name as string | undefined) ?? t.common.allAccounts)
  const list = useItems('job.list')
  useInterval(list.items.every(isOver) ? null : REFRESH_MS, list.reload)
  return (
    <SettingsPage section="jobs" lead={t.jobs.lead}>
      <ListView list={list} empty={<Empty title={t.jobs.empty}>{t.jobs.emptyHelp}</Empty>}>
        {(jobs) => (
          <Table
            rows={jobs}
            columns={[
              [
                t.jobs.job,
                (job) => (
                  <>
                    <Link href={`/settings/jobs/${job.id}`}>{stateIn(t.jobs.kinds, job.kind)}</Link>
                    <div class="sub">{accountsOf(job)}</div>
                  </>
                ),
              ],
              [
                t.common.status,
                (job) => (
                  <>
                    <JobState job={job} />
                    <JobBar job={job} />
                    <div class="sub">
                      <JobCounts job={job} />
                    </div>
                  </>
                ),
                undefined,
                'job',
              ],
              [t.jobs.by, (job) => actorOf(job, t), 'medium-only', 'clip'],
              [t.jobs.started, ({ createdAt }) => <Time at={createdAt} />, 'numeric'],
            ]}
          />
        )}
      </ListView>
    </SettingsPage>
  )
}

export function JobPage({ id }: { id: string }) {
  const { t } = useLocalized()
  const query = useRead('job.show', id)
  const { data, reload } = query
  const title = data === undefined ? fill(t.jobs.one, { id }) : stateIn(t.jobs.kinds, data.job.kind)
  return (
    <Page title={title} trail={<Link href="/settings/jobs">{t.jobs.title}</Link>}>
      <Loaded query={query}>{({ job }) => <Details job={job} reload={reload} />}</Loaded>
    </Page>
  )
}

interface Refusal {
  line: number
  reason: string
}

const linkTo = (href: string, text: string) => <Link href={href}>{text}</Link>

/** What the operator asked for: a change of tags, a replay or a resend, or a change of many accounts. */
function parametersOf({ parameters, endpointName, clientName }: Job, t: Texts): Fact[] {
  type Parameters = Partial<Record<string, string>>
  const { endpointId, from, to, rate, change, url, client, until, reason } = parameters as Parameters
  const { add, remove, events } = parameters as Partial<Record<string, string[]>>
  return [
    !!add?.length && [t.bulk.add, add.join(', ')],
    !!remove?.length && [t.bulk.remove, remove.join(', ')],
    !!endpointId && [t.endpoints.endpoint, linkTo(`/endpoints/${endpointId}`, endpointName || endpointId)],
    !!from && [t.again.from, <Time key="f" at={from} />],
    !!to && [t.again.to, <Time key="t" at={to} />],
    !!from && [t.endpoints.events, events?.join(', ') ?? t.common.all],
    !!rate && [t.again.perSecond, rate],
    !!change && [t.many.action, stateIn(t.many.parameters, change)],
    !!url && [t.endpoints.url, url],
    !!client && [t.clients.client, linkTo(`/clients/${client}`, clientName ?? client)],
    !!until && [t.mute.until, <Time key="u" at={until} />],
    !!reason && [t.mute.reason, reason],
  ]
}

function Details({ job, reload }: { job: Job; reload: () => void }) {
  const { t, number } = useLocalized()
  const { refusals = [], refused = 0 } = job.tally as { refusals?: Refusal[]; refused?: number }
  return (
    <>
      <Panel title={t.jobs.progress}>
        <JobProgress started={job} onEnd={reload} />
      </Panel>
      <Panel title={t.jobs.details}>
        <Facts
          items={[
            [
              t.common.account,
              job.accountId && (
                <Link href={`/accounts/${job.accountId}`}>{job.accountName ?? job.accountId}</Link>
              ),
            ],
            ...parametersOf(job, t),
            [t.jobs.by, actorOf(job, t)],
            [t.jobs.started, <Time key="started" at={job.createdAt} />],
            [t.jobs.ended, <Time key="ended" at={job.finishedAt} />],
          ]}
        />
      </Panel>
      {job.kind === 'accounts.change' && <AccountResults key={job.status} job={job} />}
      {refusals.length > 0 && (
        <Panel title={t.imports.refusals}>
          {refused > refusals.length && (
            <p class="muted">
              {fill(t.imports.firstRefusals, { shown: number(refusals.length), all: number(refused) })}
            </p>
          )}
          <Table
            rows={refusals}
            keyOf={({ line }) => line}
            header={null}
            columns={[
              [t.imports.line, ({ line }) => number(line), 'numeric'],
              [t.events.reason, ({ reason }) => reason],
            ]}
          />
        </Panel>
      )}
    </>
  )
}
