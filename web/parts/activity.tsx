/** Rows of the activity log: who changed what, from what to what. */
import type { ObjectKind } from '../../src/operators/activity.ts'
import type { Activity } from '../../src/operators/list-activity.ts'
import { type Json, queryOf } from '../api.ts'
import { Link } from '../router.tsx'
import { describeCondition, describeFailure } from '../texts/service.ts'
import { fill, stateIn, type Texts, useLocalized } from '../texts.ts'
import { Time } from './values.tsx'

export type ActivityRow = Json<Activity>

const UTC = /^\d{4}-\d\d-\d\dT[\d:.]+Z$/
/** Fields that have a condition, or a filter that may be one. */
const CONDITIONS = ['condition', 'filters']

export function ActivityList({ rows }: { rows: ActivityRow[] }) {
  const { t, number } = useLocalized()
  return (
    <ol class="activity">
      {Array.from(byChange(rows), ([row, ...others]) => (
        <li key={row.id}>
          <Sentence row={row} />
          {others.length > 0 && (
            <details>
              <summary>{fill(t.member.moreAccounts, { count: number(others.length) })}</summary>
              {others.map((other) => (
                <Sentence key={other.id} row={other} />
              ))}
            </details>
          )}
          <div class="muted">
            {row.actorName !== null && `${row.actor} · `}
            <Time at={row.occurredAt} />
          </div>
          <ChangeList changes={row.changes} />
        </li>
      ))}
    </ol>
  )
}

/** What one job or request did to several accounts, one after the other, is one item. The log has the request of both. */
function byChange(rows: ActivityRow[]): Array<[ActivityRow, ...ActivityRow[]]> {
  const groups: Array<[ActivityRow, ...ActivityRow[]]> = []
  for (const row of rows) {
    const group = groups.at(-1)
    const isSame = (['requestId', 'action', 'actor'] as const).every((name) => row[name] === group?.[0][name])
    const isOther = group?.every(({ accountId }) => accountId !== row.accountId)
    if (group && isSame && isOther && row.requestId) group.push(row)
    else groups.push([row])
  }
  return groups
}

/** Who did what to what, such as "Aiko paused the endpoint CRM of the account Tokyo Store". */
function Sentence({ row }: { row: ActivityRow }) {
  const { t } = useLocalized()
  const nameOf = (placeholder: string): string | null => {
    if (placeholder === 'actor') return actorOf(row, t)
    return placeholder === 'account' ? (row.accountName ?? row.accountId) : objectOf(row, t)
  }
  // Another version may have recorded an action that this one does not know.
  const template = Object.hasOwn(t.activity.actions, row.action)
    ? t.activity.actions[row.action]
    : `{actor}: ${row.action} {object}`
  const complete = template.replace(/\[(.*?\{(\w+)\}.*?)\]/, (_, part, name) =>
    nameOf(name) === null ? '' : part,
  )
  return (
    <p>
      {complete.split(/\{(\w+)\}/).map((part, index) => {
        if (index % 2 === 0) return part
        const href = hrefOf(part, row)
        const name = nameOf(part) ?? '–'
        return href === null ? (
          <b key={index}>{name}</b>
        ) : (
          <Link key={index} href={href}>
            {name}
          </Link>
        )
      })}
    </p>
  )
}

export function actorOf(
  { actorKind, actor, actorName }: Pick<ActivityRow, 'actorKind' | 'actor' | 'actorName'>,
  t: Texts,
): string {
  if (actorKind === 'token') return t.operators.tokenHolder
  if (actorKind === 'service') return t.activity.service
  return actorKind === 'command' ? fill(t.activity.command, { name: actor }) : (actorName ?? actor)
}

/** The name of today, or else what was recorded of a removed object, or else its id. */
function objectOf({ objectKind, objectName, objectId, changes }: ActivityRow, t: Texts): string | null {
  if (objectKind === 'job' && typeof changes.kind === 'string') return stateIn(t.jobs.kinds, changes.kind)
  if (objectName) return objectName
  if (objectKind === 'key') return changes.client === undefined ? null : String(changes.client)
  const recorded = Array.isArray(changes.name) ? changes.name.findLast((name) => name) : null
  return recorded ? String(recorded) : objectId
}

/** Null for what has no page, or was removed. */
function hrefOf(placeholder: string, row: ActivityRow): string | null {
  const { objectKind, objectId, objectName, accountId, accountName } = row
  if (placeholder === 'account') return accountName && `/accounts/${accountId}`
  if (placeholder === 'actor' || (objectName === null && objectKind !== 'member')) return null
  return objectHref(objectKind, objectId, accountId)
}

/** Null for a kind of objects without pages. */
export function objectHref(kind: string, id: string | null, account: string | null): string | null {
  switch (kind) {
    case 'account':
      return `/accounts/${id}`
    case 'endpoint':
      return `/endpoints/${id}`
    case 'client':
      return `/clients/${id}`
    case 'job':
      return `/settings/jobs/${id}`
    case 'notification_channel':
      return `/settings/notifications/${id}`
    case 'member':
      return `/accounts/${account}/audience/${id}`
    default:
      return null
  }
}

export function ChangeList({ changes }: { changes: Record<string, unknown> }) {
  const { t, dateTime } = useLocalized()
  // The sentence has the kind of a job already.
  const words: Record<string, Record<string, string>> = {
    role: t.operators.roles,
    problem: t.reasons,
    failed: t.checkNames,
    change: t.many.parameters,
    action: t.many.endpointActions,
    status: { ...t.endpoints.states, ...t.clients.states },
    failure: { [String(changes.failure)]: describeFailure(t, String(changes.failure)) },
  }
  const textOf = (field: string, value: unknown): string => {
    if (typeof value === 'string' && UTC.test(value)) return dateTime(value)
    if (!CONDITIONS.includes(field) || !value) return shown(value, words[field] ?? {}, t)
    const { condition = value, ...others } = value as { condition?: unknown }
    const isAlone = condition === value || Object.keys(others).length === 0
    return describeCondition(t, JSON.stringify(isAlone ? condition : value)).join(' · ')
  }
  const entries = Object.entries(changes).filter(([field]) => field !== 'kind')
  if (entries.length === 0) return null
  return (
    <ul class="changes">
      {entries.map(([field, change]) => (
        <li key={field}>
          <span>{stateIn({ ...t.manage.fields, ...t.activity.fields }, field)}</span>{' '}
          {Array.isArray(change) && change.length === 2 ? (
            <>
              <del>{textOf(field, change[0])}</del> → <ins>{textOf(field, change[1])}</ins>
            </>
          ) : (
            <span>{change === 'replaced' ? t.activity.replaced : textOf(field, change)}</span>
          )}
        </li>
      ))}
    </ul>
  )
}

/** @param words of the values of this field, if they are a closed set */
function shown(value: unknown, words: Record<string, string>, t: Texts): string {
  if (value === null || value === undefined) return '–'
  if (typeof value === 'boolean') return value ? t.common.yes : t.common.no
  if (Array.isArray(value)) return value.map((item) => shown(item, words, t)).join(', ') || '–'
  return typeof value === 'string' ? stateIn(words, value) : JSON.stringify(value)
}

/** @param account required for a member */
export function ActivityLink(object: { kind: ObjectKind; id: string; account?: string }) {
  const { t } = useLocalized()
  return (
    <p>
      <Link href={`/activity/of${queryOf(object)}`}>{t.activity.title}</Link>
    </p>
  )
}
