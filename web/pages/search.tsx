/** What a name or an id finds in all accounts, as one table. */
import type { ComponentChildren } from 'preact'
import type { SearchResult } from '../../src/operations/search.ts'
import { type Json, queryOf } from '../api.ts'
import { useQuery } from '../hooks.ts'
import { ActivityList } from '../parts/activity.tsx'
import { AccountChooser } from '../parts/chooser.tsx'
import { Page, Panel } from '../parts/page.tsx'
import { Empty, Loaded } from '../parts/states.tsx'
import { Table } from '../parts/table.tsx'
import { Link, navigate } from '../router.tsx'
import { type Texts, useLocalized } from '../texts.ts'
import { Relationship } from './audience.tsx'

/** A ULID. The list of events finds it. */
const WEBHOOK_EVENT_ID = /^[0-7][0-9A-HJKMNP-TV-Z]{25}$/

export function SearchPage({ text }: { text: string }) {
  const { t } = useLocalized()
  const query = useQuery<Json<SearchResult>>(text === '' ? null : `/api/search${queryOf({ q: text })}`)
  return (
    <Page title={t.search.title} lead={text === '' ? undefined : <bdi>{text}</bdi>}>
      {text === '' ? (
        <Empty title={t.search.start}>{t.search.startHelp}</Empty>
      ) : (
        <Loaded query={query}>{(result) => !query.error && <Result text={text} result={result} />}</Loaded>
      )}
    </Page>
  )
}

function Result({ text, result }: { text: string; result: Json<SearchResult> }) {
  const { t } = useLocalized()
  const { activity, isComplete, hasMore } = result
  const rows = rowsOf(result, text, t)
  return (
    <>
      {!isComplete && <Note text={text} message={t.search.incomplete} />}
      {isComplete && hasMore && <Note text={text} message={t.search.hasMore} />}
      {[...text].length < 2 && (
        <p class="notice hint" role="status">
          {t.search.tooShort}
        </p>
      )}
      {rows.length + activity.length === 0 && (
        <Empty title={isComplete ? t.search.nothing : t.search.nothingYet}>{t.search.nothingHelp}</Empty>
      )}
      {rows.length > 0 && <Found rows={rows} />}
      {activity.length > 0 && (
        <Panel title={t.activity.title}>
          <ActivityList rows={activity} />
        </Panel>
      )}
    </>
  )
}

/** Says why there may be more, and leads to the search in one account, which has no such limit. */
function Note({ text, message }: { text: string; message: string }) {
  const { t } = useLocalized()
  return (
    <>
      <p class="notice hint" role="status">
        {message}
      </p>
      <div class="filters">
        <AccountChooser
          label={t.search.chooseAccount}
          value={null}
          onChoose={(account) =>
            account && navigate(`/accounts/${account.id}/audience${queryOf({ q: text })}`)
          }
        />
      </div>
    </>
  )
}

interface Row {
  kind: string
  href: string
  name: string
  ids: Array<string | null>
  where: ComponentChildren
}

/** Each account in which a person was found is a row. */
function rowsOf({ people, accounts }: Json<SearchResult>, text: string, t: Texts): Row[] {
  return [
    ...people.flatMap(({ userId, memberships }) =>
      memberships.map(({ accountId, accountName, displayName, relationship, externalId }) => ({
        kind: t.events.person,
        href: `/accounts/${accountId}/audience/${encodeURIComponent(userId)}`,
        name: displayName ?? t.audience.noName,
        ids: [userId, externalId],
        where: (
          <>
            <Link href={`/accounts/${accountId}`}>{accountName}</Link>
            <div class="sub">
              <Relationship value={relationship} />
            </div>
          </>
        ),
      })),
    ),
    ...accounts.map(({ id, name, basicId, channelId, organizationName }) => ({
      kind: t.common.account,
      href: `/accounts/${id}`,
      name,
      ids: [basicId, channelId, id],
      where: organizationName,
    })),
    ...(WEBHOOK_EVENT_ID.test(text)
      ? [
          {
            kind: t.events.event,
            href: `/events${queryOf({ key: text })}`,
            name: t.search.event,
            ids: [],
            where: '–',
          },
        ]
      : []),
  ]
}

function Found({ rows }: { rows: Row[] }) {
  const { t } = useLocalized()
  return (
    <Table
      rows={rows}
      keyOf={({ href }) => href}
      columns={[
        [
          t.search.name,
          ({ href, name, ids }) => (
            <>
              <Link href={href}>{name}</Link>
              <div class="sub mono">{ids.filter(Boolean).join(' · ')}</div>
            </>
          ),
        ],
        [t.events.kind, ({ kind }) => kind],
        [t.search.where, ({ where }) => where],
      ]}
    />
  )
}
