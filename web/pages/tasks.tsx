/** Long work of operators: what runs, and how it ended. */
import { useInterval } from '../hooks.ts'
import { useItems, useRead } from '../operations.ts'
import { AccountResults } from '../parts/account-results.tsx'
import { type Fact, Facts, Page, Panel } from '../parts/page.tsx'
import { SettingsPage } from '../parts/settings-page.tsx'
import { Empty, ListView, Loaded } from '../parts/states.tsx'
import { Table } from '../parts/table.tsx'
import { isOver, type Task, TaskBar, TaskCounts, TaskProgress, TaskState } from '../parts/task.tsx'
import { Time } from '../parts/values.tsx'
import { Link } from '../router.tsx'
import { fill, stateIn, type Texts, useLocalized } from '../texts.ts'

const REFRESH_MS = 2_000

export function TasksPage() {
  const { t, number } = useLocalized()
  // A removal is not a task of its account, which it deletes.
  const accountsOf = ({ kind, accountName, parameters, total }: Task) =>
    ['members.erase', 'accounts.onboard', 'accounts.change'].includes(kind)
      ? fill(t.tasks.accounts, { count: number(Number(total)) })
      : (accountName ?? (parameters.name as string | undefined) ?? t.common.allAccounts)
  const list = useItems('job.list')
  useInterval(list.items.every(isOver) ? null : REFRESH_MS, list.reload)
  return (
    <SettingsPage section="tasks" lead={t.tasks.lead}>
      <ListView list={list} empty={<Empty title={t.tasks.empty}>{t.tasks.emptyHelp}</Empty>}>
        {(tasks) => (
          <Table
            rows={tasks}
            columns={[
              [
                t.tasks.task,
                (task) => (
                  <>
                    <Link href={`/settings/tasks/${task.id}`}>{stateIn(t.tasks.kinds, task.kind)}</Link>
                    <div class="sub">{accountsOf(task)}</div>
                  </>
                ),
              ],
              [
                t.common.status,
                (task) => (
                  <>
                    <TaskState task={task} />
                    <TaskBar task={task} />
                    <div class="sub">
                      <TaskCounts task={task} />
                    </div>
                  </>
                ),
                undefined,
                'task',
              ],
              [t.tasks.by, ({ actor }) => actor, 'medium-only', 'clip'],
              [t.tasks.started, ({ createdAt }) => <Time at={createdAt} />, 'numeric'],
            ]}
          />
        )}
      </ListView>
    </SettingsPage>
  )
}

export function TaskPage({ id }: { id: string }) {
  const { t } = useLocalized()
  const query = useRead('job.show', id)
  const { data, reload } = query
  const title = data === undefined ? fill(t.tasks.one, { id }) : stateIn(t.tasks.kinds, data.job.kind)
  return (
    <Page title={title} trail={<Link href="/settings/tasks">{t.tasks.title}</Link>}>
      <Loaded query={query}>{({ job }) => <Details task={job} reload={reload} />}</Loaded>
    </Page>
  )
}

interface Refusal {
  line: number
  reason: string
}

const linkTo = (href: string, text: string) => <Link href={href}>{text}</Link>

/** What the operator asked for: a change of tags, a replay or a resend, or a change of many accounts. */
function parametersOf({ parameters }: Task, t: Texts): Fact[] {
  type Parameters = Partial<Record<string, string>>
  const { endpointId, from, to, rate, change, url, client, until, reason } = parameters as Parameters
  const { add, remove, events } = parameters as Partial<Record<string, string[]>>
  return [
    !!add?.length && [t.bulk.add, add.join(', ')],
    !!remove?.length && [t.bulk.remove, remove.join(', ')],
    !!endpointId && [t.endpoints.endpoint, linkTo(`/endpoints/${endpointId}`, endpointId)],
    !!from && [t.again.from, <Time key="f" at={from} />],
    !!to && [t.again.to, <Time key="t" at={to} />],
    !!from && [t.endpoints.events, events?.join(', ') ?? t.common.all],
    !!rate && [t.again.perSecond, rate],
    !!change && [t.many.action, stateIn(t.many.parameters, change)],
    !!url && [t.endpoints.url, url],
    !!client && [t.clients.client, linkTo(`/clients/${client}`, client)],
    !!until && [t.mute.until, <Time key="u" at={until} />],
    !!reason && [t.mute.reason, reason],
  ]
}

function Details({ task, reload }: { task: Task; reload: () => void }) {
  const { t, number } = useLocalized()
  const { refusals = [], refused = 0 } = task.tally as { refusals?: Refusal[]; refused?: number }
  return (
    <>
      <Panel title={t.tasks.progress}>
        <TaskProgress started={task} onEnd={reload} />
      </Panel>
      <Panel title={t.tasks.details}>
        <Facts
          items={[
            [
              t.common.account,
              task.accountId && (
                <Link href={`/accounts/${task.accountId}`}>{task.accountName ?? task.accountId}</Link>
              ),
            ],
            ...parametersOf(task, t),
            [t.tasks.by, task.actor],
            [t.tasks.started, <Time key="started" at={task.createdAt} />],
            [t.tasks.ended, <Time key="ended" at={task.finishedAt} />],
          ]}
        />
      </Panel>
      {task.kind === 'accounts.change' && <AccountResults key={task.status} task={task} />}
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
