/** Rows of the activity log: who changed what, from what to what. */
import { useCallback } from 'preact/hooks'
import type { Activity } from '../../src/operator/list-activity.ts'
import { get, type Json, queryOf } from '../api.ts'
import { useList } from '../hooks.ts'
import { Link } from '../router.tsx'
import { stateIn, useLocalized } from '../texts.ts'
import { Panel } from './page.tsx'
import { ListView } from './states.tsx'
import { Time } from './values.tsx'

export type ActivityRow = Json<Activity>

/** @param isOfObject leaves out the object, because the page shows it */
export function ActivityList({ rows, isOfObject = false }: { rows: ActivityRow[]; isOfObject?: boolean }) {
  const { t } = useLocalized()
  return (
    <ol class="activity">
      {rows.map((row) => (
        <li key={row.id}>
          <div>
            <strong>{stateIn(t.activity.actions, row.action)}</strong>
            {!isOfObject && <ObjectLink row={row} />}
            {row.accountName && row.objectKind !== 'account' && !isOfObject && (
              <Link class="muted" href={`/accounts/${row.accountId}`}>
                {row.accountName}
              </Link>
            )}
          </div>
          <div class="muted">
            <span>{actorOf(row, t)}</span>
            {' · '}
            <Time at={row.occurredAt} />
          </div>
          <ChangeList changes={row.changes} />
        </li>
      ))}
    </ol>
  )
}

function actorOf({ actorKind, actor }: ActivityRow, t: ReturnType<typeof useLocalized>['t']): string {
  if (actorKind === 'token') return t.operators.tokenHolder
  if (actorKind === 'service') return t.activity.service
  return actorKind === 'command' ? t.activity.command(actor) : actor
}

function ObjectLink({ row }: { row: ActivityRow }) {
  const { t } = useLocalized()
  const { objectKind, objectId, accountId, accountName, organizationName } = row
  if (objectId === null) return null
  const text = `${t.activity.objects[objectKind]} ${objectId}`
  switch (objectKind) {
    case 'account':
      return <Link href={`/accounts/${objectId}`}>{accountName ?? text}</Link>
    case 'endpoint':
      return <Link href={`/endpoints/${objectId}`}>{text}</Link>
    case 'client':
      return <Link href={`/clients/${objectId}`}>{text}</Link>
    case 'notification_channel':
      return <Link href={`/settings/notifications/${objectId}`}>{text}</Link>
    case 'member':
      return <Link href={`/audience/${accountId}/${objectId}`}>{text}</Link>
    case 'organization':
      return <span>{organizationName ?? text}</span>
    default:
      return <span>{text}</span>
  }
}

function ChangeList({ changes }: { changes: Record<string, unknown> }) {
  const { t } = useLocalized()
  const entries = Object.entries(changes)
  if (entries.length === 0) return null
  return (
    <ul class="changes">
      {entries.map(([field, change]) => (
        <li key={field}>
          <span class="mono">{field}</span>{' '}
          {Array.isArray(change) && change.length === 2 ? (
            <>
              <del>{shown(change[0])}</del> → <ins>{shown(change[1])}</ins>
            </>
          ) : (
            <span>{change === 'replaced' ? t.activity.replaced : shown(change)}</span>
          )}
        </li>
      ))}
    </ul>
  )
}

const shown = (value: unknown): string =>
  value === null || value === undefined ? '–' : typeof value === 'string' ? value : JSON.stringify(value)

/** What was done with one object, for its page. */
export function ActivityPanel({
  kind,
  id,
  account,
}: {
  kind: 'account' | 'endpoint' | 'client' | 'member' | 'notification_channel'
  id: string
  /** required for a member */
  account?: string
}) {
  const { t } = useLocalized()
  const load = useCallback(
    (before: string | null, signal: AbortSignal) =>
      get<{ activity: ActivityRow[]; next: string | null }>(
        `/api/activity/of${queryOf({ kind, id, account, before })}`,
        signal,
      ).then(({ activity, next }) => ({ items: activity, next })),
    [kind, id, account],
  )
  const list = useList(load)
  return (
    <Panel title={t.activity.title}>
      <ListView list={list} empty={<p class="muted">{t.activity.emptyObject}</p>}>
        {(rows) => <ActivityList rows={rows} isOfObject={kind !== 'account'} />}
      </ListView>
    </Panel>
  )
}
