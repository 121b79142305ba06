/** The log of who changed what, of all objects. */
import { queryOf } from '../api.ts'
import { useList } from '../hooks.ts'
import { useRead } from '../operations.ts'
import { ActivityList, type ActivityRow, objectHref } from '../parts/activity.tsx'
import { AccountFilter, ChoiceFilter } from '../parts/filters.tsx'
import { Page } from '../parts/page.tsx'
import { Empty, ListView } from '../parts/states.tsx'
import { accountOf, Link, replaceQuery, usePlace } from '../router.tsx'
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

/** What was done with one object. */
export function ObjectActivityPage() {
  const { t } = useLocalized()
  const { query } = usePlace()
  const [kind, id, account] = [query.get('kind') ?? '', query.get('id'), accountOf(query)]
  const list = useList<ActivityRow>(
    `/api/activity/of${queryOf({ kind, id, account })}`,
    'activity',
    (before) => ({
      before,
    }),
  )
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
  const operator = query.get('operator')
  const action = GROUPS.find((group) => group === query.get('action')) ?? null
  const filter = {
    account,
    operator,
    action,
    from: dayStart(query.get('from'), 0),
    to: dayStart(query.get('to'), 1),
  }
  const path = queryOf(filter)
  const list = useList<ActivityRow>(`/api/activity${path}`, 'activity', (before) => ({ before }))
  const { data } = useRead('operator.list', null)
  return (
    <Page
      title={t.activity.title}
      lead={t.activity.lead}
      actions={
        <a class="button" href={`/api/activity/export${path}`} download>
          {t.activity.export}
        </a>
      }
    >
      <div class="filters">
        <AccountFilter account={account} />
        <ChoiceFilter
          name="operator"
          label={t.activity.who}
          value={operator}
          options={[
            ['', t.common.all],
            ...(data?.operators ?? []).map(({ id, email }) => [id, email] as const),
          ]}
        />
        <ChoiceFilter
          name="action"
          label={t.activity.what}
          value={action}
          options={[['', t.common.all], ...GROUPS.map((group) => [group, t.activity.groups[group]] as const)]}
        />
        {(['from', 'to'] as const).map((name) => (
          <label key={name} class="field">
            <span>{t.activity[name]}</span>
            <input
              type="date"
              value={query.get(name) ?? ''}
              onChange={(event) => replaceQuery({ [name]: event.currentTarget.value })}
            />
          </label>
        ))}
      </div>
      <ListView list={list} empty={<Empty title={t.activity.empty}>{t.activity.emptyHelp}</Empty>}>
        {(rows) => <ActivityList rows={rows} />}
      </ListView>
    </Page>
  )
}

/** The beginning of a day of the browser's time zone, or of a later one. */
function dayStart(day: string | null, later: number): string | null {
  const [year, month, date] =
    /^(\d{4})-(\d\d)-(\d\d)$/
      .exec(day ?? '')
      ?.slice(1)
      .map(Number) ?? []
  if (year === undefined || month === undefined || date === undefined) return null
  return new Date(year, month - 1, date + later).toISOString()
}
