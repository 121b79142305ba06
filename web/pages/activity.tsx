/** The log of who changed what, of all objects. */
import { queryOf } from '../api.ts'
import { useList } from '../hooks.ts'
import { useItems, useRead } from '../operations.ts'
import { ActivityList, type ActivityRow, objectHref } from '../parts/activity.tsx'
import { AccountFilter, ChoiceFilter, DaysFilter, daysOf } from '../parts/filters.tsx'
import { Page } from '../parts/page.tsx'
import { Empty, ListView } from '../parts/states.tsx'
import { accountOf, Link, usePlace } from '../router.tsx'
import { useLocalized } from '../texts.ts'

/** The first words of actions, by which they are filtered. */
const GROUPS = [
  'organization',
  'account',
  'endpoint',
  'client',
  'key',
  'member',
  'events',
  'operator',
  'notifications',
  'job',
] as const

const ACTORS = ['operator', 'token', 'command', 'service'] as const

/** What was done with one object. */
export function ObjectActivityPage() {
  const { t } = useLocalized()
  const { query } = usePlace()
  const [kind, id, account] = [query.get('kind') ?? '', query.get('id'), accountOf(query)]
  const path = `/api/activity/of${queryOf({ kind, id, account })}`
  const list = useList<ActivityRow>(path, 'activity')
  const href = objectHref(kind, id, account)
  const row = list.items.find(({ objectKind, objectId }) => objectKind === kind && objectId === id)
  return (
    <Page title={t.activity.title} trail={href && <Link href={href}>{row?.objectName || id}</Link>}>
      <ListView list={list} empty={<p class="muted">{t.activity.emptyObject}</p>}>
        {(rows) => <ActivityList rows={rows} />}
      </ListView>
    </Page>
  )
}

export function ActivityPage() {
  const { t } = useLocalized()
  const { query } = usePlace()
  const account = accountOf(query)
  const who = query.get('operator')
  const actor = ACTORS.find((kind) => kind === who)
  const action = GROUPS.find((group) => group === query.get('action')) ?? null
  const filter = { account, ...(actor ? { actor } : { operator: who }), action, ...daysOf(query) }
  const list = useItems('activity.list', null, filter)
  const { data } = useRead('operator.list', null)
  return (
    <Page
      title={t.activity.title}
      lead={t.activity.lead}
      actions={
        <a class="button" href={`/api/activity/export${queryOf(filter)}`} download>
          {t.activity.export}
        </a>
      }
    >
      <div class="filters">
        <AccountFilter account={account} />
        <ChoiceFilter
          name="operator"
          label={t.activity.who}
          value={who}
          options={[
            ['', t.common.all],
            ...ACTORS.map((kind) => [kind, t.activity.actors[kind]] as const),
            ...(data?.operators ?? []).map(({ id, name, email }) => [id, name ?? email] as const),
          ]}
        />
        <ChoiceFilter
          name="action"
          label={t.activity.what}
          value={action}
          options={[['', t.common.all], ...GROUPS.map((group) => [group, t.activity.groups[group]] as const)]}
        />
        <DaysFilter query={query} />
      </div>
      <ListView list={list} empty={<Empty title={t.activity.empty}>{t.activity.emptyHelp}</Empty>}>
        {(rows) => <ActivityList rows={rows} />}
      </ListView>
    </Page>
  )
}
