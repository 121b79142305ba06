/** The members of an account, as a part of its page, found by name, user id, external id, tag, source or relationship. */
import { useState } from 'preact/hooks'
import type { Member } from '../../src/audience/member.ts'
import { queryOf } from '../api.ts'
import { useFurtherPages, useList, useSettled } from '../hooks.ts'
import { pathOf } from '../operations.ts'
import { AllMatching } from '../parts/bulk.tsx'
import { ChoiceFilter } from '../parts/filters.tsx'
import { TextField } from '../parts/form.tsx'
import { ExportPerson } from '../parts/person.tsx'
import { ConditionFilter, SegmentFilter } from '../parts/segments.tsx'
import { SourceLinkButton } from '../parts/source-link.tsx'
import { Empty, Failure, Loading, More } from '../parts/states.tsx'
import { Table } from '../parts/table.tsx'
import { Avatar, Count, Optional, Time } from '../parts/values.tsx'
import { Link, replaceQuery, usePlace } from '../router.tsx'
import { cameFrom } from '../texts/service.ts'
import { useLocalized } from '../texts.ts'

const FIELDS = ['q', 'userId', 'externalId', 'tag', 'source'] as const
const RELATIONSHIPS = ['following', 'blocked', 'unknown'] as const
const TYPING_MS = 250

export function Audience({ account }: { account: string }) {
  // A segment was changed, so the members are read again.
  const [round, setRound] = useState(0)
  return (
    <>
      <div class="filters">
        <SearchFields account={account} onChange={() => setRound(round + 1)} />
        <SourceLinkButton />
      </div>
      <Members key={round} account={account} />
    </>
  )
}

function useFilters() {
  const { query } = usePlace()
  const field = FIELDS.find((name) => query.has(name)) ?? 'q'
  const of = (name: string) => query.get(name) ?? ''
  const [relationship, segment, condition] = [of('relationship'), of('segment'), of('condition')]
  return { field, text: of(field), relationship, segment, condition }
}

function SearchFields({ account, onChange }: { account: string; onChange: () => void }) {
  const { t } = useLocalized()
  const { field, text, relationship, segment, condition } = useFilters()
  const change = (name: string, value: string) =>
    replaceQuery({ ...Object.fromEntries(FIELDS.map((other) => [other, null])), [name]: value })
  return (
    <>
      <ChoiceFilter
        name="by"
        label={t.audience.by}
        value={field}
        options={FIELDS.map((name) => [name, t.audience.fields[name]])}
        onChoose={(chosen) => change(chosen, text || ' ')}
      />
      <TextField
        name="search"
        class="grow"
        label={t.audience.search}
        type="search"
        value={text.trim()}
        placeholder={t.audience.fields[field]}
        onChange={(value) => change(field, value)}
      />
      <ChoiceFilter
        name="relationship"
        label={t.audience.relationship}
        value={relationship}
        options={[
          ['', t.common.all],
          ...RELATIONSHIPS.map((name) => [name, t.audience.relationships[name]] as const),
        ]}
      />
      <SegmentFilter account={account} value={segment} onChange={onChange} />
      {segment === '' && <ConditionFilter account={account} value={condition} />}
    </>
  )
}

function Members({ account }: { account: string }) {
  const { t } = useLocalized()
  const { field, text, relationship, segment, condition } = useFilters()
  const wanted = { [field]: text.trim(), relationship, segment, condition: segment ? '' : condition }
  const filter = useSettled(queryOf(wanted), TYPING_MS)
  const list = useList<Member>(pathOf('account.members', account) + filter, 'data', 'cursor')
  // A page of the service examines 2,000 members and may be empty. Another filter ends the search.
  const isSearching = list.items.length === 0 && (list.isLoading || list.hasMore)
  useFurtherPages(list, isSearching)
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
  if (isSearching) return <Loading />
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
      rows={members}
      columns={[
        [
          t.audience.member,
          ({ displayName, userId }) => (
            <div class="person">
              <Avatar name={displayName} id={userId} />
              <div>
                <Link href={`/accounts/${account}/audience/${encodeURIComponent(userId)}`}>
                  {displayName ?? t.audience.noName}
                </Link>
                <div class="sub mono">{userId}</div>
              </div>
            </div>
          ),
        ],
        [t.audience.relationship, (member) => <Relationship value={member.relationship} />],
        [t.audience.tags, ({ tags }) => <Tags tags={tags} />, 'medium-only'],
        [t.member.externalId, ({ externalId }) => <Optional value={externalId} />, 'wide-only', 'clip'],
        [t.member.cameFrom, ({ source }) => <Optional value={cameFrom(source)} />, 'wide-only', 'clip'],
        [t.audience.events, ({ eventCount }) => <Count value={eventCount} />, 'numeric medium-only'],
        [t.audience.lastSeen, ({ lastSeenAt }) => <Time at={lastSeenAt} />, 'numeric'],
      ]}
    />
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
