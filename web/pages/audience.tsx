/** The members of an account, found by name, user id, external id, tag or relationship. */
import { useCallback } from 'preact/hooks'
import type { Member } from '../../src/audience/member.ts'
import type { AccountDetails } from '../../src/operator/accounts/accounts.ts'
import { get, type Json, queryOf } from '../api.ts'
import { useList, useQuery, useSettled } from '../hooks.ts'
import { AllMatching } from '../parts/bulk.tsx'
import { AccountChooser } from '../parts/chooser.tsx'
import { useFurtherPages } from '../parts/further-pages.ts'
import { Page } from '../parts/page.tsx'
import { ExportPerson } from '../parts/person.tsx'
import { Empty, Failure, Loading, More } from '../parts/states.tsx'
import { Table } from '../parts/table.tsx'
import { Avatar, Count, Time } from '../parts/values.tsx'
import { Link, navigate, replaceQuery, usePlace } from '../router.tsx'
import { fill } from '../texts/languages.ts'
import { useLocalized } from '../texts.ts'

const FIELDS = ['q', 'userId', 'externalId', 'tag'] as const
const RELATIONSHIPS = ['following', 'blocked', 'unknown'] as const
const TYPING_MS = 250

export function AudiencePage({ account }: { account: string | null }) {
  const { t } = useLocalized()
  const { data, error, reload } = useQuery<{ account: Json<AccountDetails> }>(
    account === null ? null : `/api/accounts/${account}`,
  )
  const name = data?.account.name
  return (
    <Page title={name === undefined ? t.audience.title : fill(t.audience.of, { account: name })}>
      <div class="filters">
        <AccountChooser
          label={t.common.account}
          value={account === null ? null : { id: account, name: name ?? account }}
          onChoose={(chosen) => chosen && navigate(`/audience/${chosen.id}`)}
        />
        {account !== null && <SearchFields />}
      </div>
      {account === null && <Empty title={t.audience.choose} />}
      {error && <Failure error={error} retry={reload} />}
      {account !== null && !error && <Members account={account} />}
    </Page>
  )
}

function useFilters() {
  const { query } = usePlace()
  const field = FIELDS.find((name) => query.has(name)) ?? 'q'
  return { field, text: query.get(field) ?? '', relationship: query.get('relationship') ?? '' }
}

function SearchFields() {
  const { t } = useLocalized()
  const { field, text, relationship } = useFilters()
  const change = (name: string, value: string) =>
    replaceQuery({ ...Object.fromEntries(FIELDS.map((other) => [other, null])), [name]: value })
  return (
    <>
      <div class="field">
        <label for="by">{t.audience.by}</label>
        <select id="by" value={field} onChange={(event) => change(event.currentTarget.value, text || ' ')}>
          {FIELDS.map((name) => (
            <option key={name} value={name}>
              {t.audience.fields[name]}
            </option>
          ))}
        </select>
      </div>
      <div class="field grow">
        <label for="search">{t.audience.search}</label>
        <input
          id="search"
          type="search"
          value={text.trim()}
          placeholder={t.audience.fields[field]}
          onInput={(event) => change(field, event.currentTarget.value)}
        />
      </div>
      <div class="field">
        <label for="relationship">{t.audience.relationship}</label>
        <select
          id="relationship"
          value={relationship}
          onChange={(event) => replaceQuery({ relationship: event.currentTarget.value })}
        >
          <option value="">{t.common.all}</option>
          {RELATIONSHIPS.map((name) => (
            <option key={name} value={name}>
              {t.audience.relationships[name]}
            </option>
          ))}
        </select>
      </div>
    </>
  )
}

function Members({ account }: { account: string }) {
  const { t, number } = useLocalized()
  const { field, text, relationship } = useFilters()
  const filter = useSettled(queryOf({ [field]: text.trim(), relationship }), TYPING_MS)
  const load = useCallback(
    (cursor: string | null, signal: AbortSignal) => {
      const query = queryOf({ ...Object.fromEntries(new URLSearchParams(filter)), cursor })
      return get<{ data: Member[]; nextCursor: string | null }>(
        `/api/accounts/${account}/members${query}`,
        signal,
      ).then(({ data, nextCursor }) => ({ items: data, next: nextCursor }))
    },
    [account, filter],
  )
  const list = useList(load)
  const search = useFurtherPages(list)
  if (list.error) return <Failure error={list.error} retry={list.reload} />
  if (list.items.length > 0) {
    const filters = Object.fromEntries(new URLSearchParams(filter))
    return (
      <>
        <AllMatching account={account} filters={filters} onChange={list.reload} />
        <MemberTable account={account} members={list.items} />
        <More list={list} />
      </>
    )
  }
  if (list.isLoading || search.isGoingOn) {
    return search.pages < 2 ? (
      <Loading />
    ) : (
      <p role="status">{fill(t.audience.searching, { pages: number(search.pages) })}</p>
    )
  }
  if (list.hasMore) {
    return (
      <Empty title={fill(t.audience.searching, { pages: number(search.pages) })}>
        <button type="button" onClick={search.goOn}>
          {t.audience.goOn}
        </button>
      </Empty>
    )
  }
  return filter === '' ? (
    <Empty title={t.audience.empty}>{t.audience.emptyHelp}</Empty>
  ) : (
    <Empty title={t.audience.noMatch}>
      {t.audience.noMatchHelp}
      {field === 'userId' && <ExportPerson account={account} userId={text.trim()} />}
    </Empty>
  )
}

function MemberTable({ account, members }: { account: string; members: Member[] }) {
  const { t } = useLocalized()
  return (
    <Table
      columns={[
        t.audience.member,
        t.audience.relationship,
        { label: t.audience.tags, class: 'medium-only' },
        { label: t.member.externalId, class: 'wide-only' },
        { label: t.audience.events, class: 'numeric medium-only' },
        { label: t.audience.lastSeen, class: 'numeric' },
      ]}
    >
      {members.map((member) => (
        <tr key={member.id}>
          <th scope="row" class="col-account">
            <div class="person">
              <Avatar name={member.displayName} id={member.userId} />
              <div>
                <Link href={`/audience/${account}/${encodeURIComponent(member.userId)}`}>
                  {member.displayName ?? t.audience.noName}
                </Link>
                <div class="sub mono">{member.userId}</div>
              </div>
            </div>
          </th>
          <td>
            <Relationship value={member.relationship} />
          </td>
          <td class="medium-only">
            <Tags tags={member.tags} />
          </td>
          <td class="wide-only clip">{member.externalId ?? <span class="muted">–</span>}</td>
          <td class="numeric medium-only">
            <Count value={member.eventCount} />
          </td>
          <td class="numeric">
            <Time at={member.lastSeenAt} />
          </td>
        </tr>
      ))}
    </Table>
  )
}

export function Relationship({ value }: { value: Member['relationship'] }) {
  const { t } = useLocalized()
  const tone = { following: 'good', blocked: 'bad', unknown: '' }[value]
  return <span class={`tag ${tone}`}>{t.audience.relationships[value]}</span>
}

const TAGS_SHOWN = 4

export function Tags({ tags, max = TAGS_SHOWN }: { tags: string[]; max?: number }) {
  if (tags.length === 0) return <span class="muted">–</span>
  return (
    <span class="tags">
      {tags.slice(0, max).map((tag) => (
        <span key={tag} class="tag">
          {tag}
        </span>
      ))}
      {tags.length > max && <span class="muted">+{tags.length - max}</span>}
    </span>
  )
}
