/** The log of who changed what, of all objects. */
import type { OperatorSummary } from '../../src/operators/operators.ts'
import { type Json, queryOf } from '../api.ts'
import { useList, useQuery } from '../hooks.ts'
import { ActivityList, type ActivityRow } from '../parts/activity.tsx'
import { AccountFilter, ChoiceFilter, DaysFilter, daysOf } from '../parts/filters.tsx'
import { Page } from '../parts/page.tsx'
import { Empty, ListView } from '../parts/states.tsx'
import { accountOf, usePlace } from '../router.tsx'
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
    ...daysOf(query),
  }
  const path = queryOf(filter)
  const list = useList<ActivityRow>(`/api/activity${path}`, 'activity', (before) => ({ before }))
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
        <DaysFilter query={query} />
      </div>
      <ListView list={list} empty={<Empty title={t.activity.empty}>{t.activity.emptyHelp}</Empty>}>
        {(rows) => <ActivityList rows={rows} />}
      </ListView>
    </Page>
  )
}
