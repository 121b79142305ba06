/** The log of who changed what, of all objects. */
import { useCallback } from 'preact/hooks'
import type { OperatorSummary } from '../../src/operator/people/operators.ts'
import { get, type Json, queryOf } from '../api.ts'
import { useList, useQuery } from '../hooks.ts'
import { AccountFilter } from '../parts/account-filter.tsx'
import { ActivityList, type ActivityRow } from '../parts/activity.tsx'
import { Page } from '../parts/page.tsx'
import { Empty, ListView } from '../parts/states.tsx'
import { accountOf, replaceQuery, usePlace } from '../router.tsx'
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
  const load = useCallback(
    (before: string | null, signal: AbortSignal) =>
      get<{ activity: ActivityRow[]; next: string | null }>(
        `/api/activity${queryOf({ ...filter, before })}`,
        signal,
      ).then(({ activity, next }) => ({ items: activity, next })),
    [path],
  )
  const list = useList(load)
  const { data } = useQuery<{ operators: Array<Json<OperatorSummary>> }>('/api/operators')
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
        <label class="field">
          <span>{t.activity.who}</span>
          <select
            value={operator ?? ''}
            onChange={(event) => replaceQuery({ operator: event.currentTarget.value })}
          >
            <option value="">{t.common.all}</option>
            {data?.operators.map(({ id, email }) => (
              <option key={id} value={id}>
                {email}
              </option>
            ))}
          </select>
        </label>
        <label class="field">
          <span>{t.activity.what}</span>
          <select
            value={action ?? ''}
            onChange={(event) => replaceQuery({ action: event.currentTarget.value })}
          >
            <option value="">{t.common.all}</option>
            {GROUPS.map((group) => (
              <option key={group} value={group}>
                {t.activity.groups[group]}
              </option>
            ))}
          </select>
        </label>
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
