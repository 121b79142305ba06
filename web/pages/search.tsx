/** What a name or an id finds in all accounts: people with their memberships, accounts and events. */
import type { FoundAccount, FoundEvent, FoundPerson, SearchResult } from '../../src/operator/search.ts'
import { type Json, queryOf } from '../api.ts'
import { useQuery } from '../hooks.ts'
import { ActivityList } from '../parts/activity.tsx'
import { AccountChooser } from '../parts/chooser.tsx'
import { Page, Panel } from '../parts/page.tsx'
import { Empty, Failure, Loading } from '../parts/states.tsx'
import { Table } from '../parts/table.tsx'
import { Avatar, CopyButton, Time } from '../parts/values.tsx'
import { Link, navigate } from '../router.tsx'
import { useLocalized } from '../texts.ts'
import { Relationship, Tags } from './audience.tsx'

export function SearchPage({ text }: { text: string }) {
  const { t } = useLocalized()
  const { data, error, reload } = useQuery<Json<SearchResult>>(
    text === '' ? null : `/api/search${queryOf({ q: text })}`,
  )
  return (
    <Page title={t.search.title} lead={text === '' ? undefined : <bdi>{text}</bdi>}>
      {text === '' && <Empty title={t.search.start}>{t.search.startHelp}</Empty>}
      {text !== '' && data === undefined && !error && <Loading />}
      {error && <Failure error={error} retry={reload} />}
      {data && !error && <Result text={text} result={data} />}
    </Page>
  )
}

function Result({ text, result }: { text: string; result: Json<SearchResult> }) {
  const { t } = useLocalized()
  const { people, accounts, events, activity, isComplete, hasMore } = result
  const isEmpty = people.length + accounts.length + events.length + activity.length === 0
  return (
    <>
      {!isComplete && <Note text={text} message={t.search.incomplete} />}
      {isComplete && hasMore && <Note text={text} message={t.search.hasMore} />}
      {[...text].length < 2 && (
        <p class="notice warning" role="status">
          {t.search.tooShort}
        </p>
      )}
      {isEmpty && (
        <Empty title={isComplete ? t.search.nothing : t.search.nothingYet}>{t.search.nothingHelp}</Empty>
      )}
      {people.length > 0 && <People people={people} />}
      {accounts.length > 0 && <Accounts accounts={accounts} />}
      {events.length > 0 && <Events events={events} />}
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
      <p class="notice warning" role="status">
        {message}
      </p>
      <div class="filters">
        <AccountChooser
          label={t.search.chooseAccount}
          value={null}
          onChoose={(account) => account && navigate(`/audience/${account.id}${queryOf({ q: text })}`)}
        />
      </div>
    </>
  )
}

function People({ people }: { people: Array<Json<FoundPerson>> }) {
  const { t } = useLocalized()
  return (
    <Panel title={t.search.people} class="found">
      {people.map((person) => (
        <Person key={person.userId} person={person} />
      ))}
    </Panel>
  )
}

function Person({ person: { userId, memberships } }: { person: Json<FoundPerson> }) {
  const { t } = useLocalized()
  const name = memberships.find(({ displayName }) => displayName !== null)?.displayName ?? null
  return (
    <section aria-label={name ?? userId}>
      <div class="person">
        <Avatar name={name} id={userId} />
        <code>{userId}</code>
        <CopyButton text={userId} label={t.audience.userId} />
      </div>
      <Table
        columns={[
          t.audience.member,
          t.common.account,
          t.audience.relationship,
          { label: t.member.externalId, class: 'medium-only' },
          { label: t.audience.tags, class: 'wide-only' },
          { label: t.audience.lastSeen, class: 'numeric medium-only' },
        ]}
      >
        {memberships.map((membership) => (
          <tr key={membership.accountId}>
            <th scope="row" class="col-account">
              <Link href={`/audience/${membership.accountId}/${encodeURIComponent(userId)}`}>
                {membership.displayName ?? t.audience.noName}
              </Link>
              {membership.externalId !== null && <div class="sub narrow-only">{membership.externalId}</div>}
            </th>
            <td>
              <Link href={`/accounts/${membership.accountId}`}>{membership.accountName}</Link>
            </td>
            <td>
              <Relationship value={membership.relationship} />
            </td>
            <td class="medium-only clip">{membership.externalId ?? <span class="muted">–</span>}</td>
            <td class="wide-only">
              <Tags tags={membership.tags} />
            </td>
            <td class="numeric medium-only">
              <Time at={membership.lastSeenAt} />
            </td>
          </tr>
        ))}
      </Table>
    </section>
  )
}

function Accounts({ accounts }: { accounts: Array<Json<FoundAccount>> }) {
  const { t } = useLocalized()
  return (
    <Panel title={t.search.accounts} class="found">
      <Table
        columns={[
          t.common.account,
          t.account.basicId,
          { label: t.account.channelId, class: 'medium-only' },
          { label: t.search.accountId, class: 'numeric' },
        ]}
      >
        {accounts.map(({ id, name, basicId, channelId, organizationName }) => (
          <tr key={id}>
            <th scope="row" class="col-account">
              <Link href={`/accounts/${id}`}>{name}</Link>
              <div class="sub">{organizationName}</div>
            </th>
            <td>{basicId ?? <span class="muted">–</span>}</td>
            <td class="medium-only">{channelId ?? <span class="muted">–</span>}</td>
            <td class="numeric">{id}</td>
          </tr>
        ))}
      </Table>
    </Panel>
  )
}

function Events({ events }: { events: Array<Json<FoundEvent>> }) {
  const { t } = useLocalized()
  return (
    <Panel title={t.search.events} class="found">
      <Table
        columns={[
          t.events.event,
          t.common.account,
          t.common.status,
          { label: t.live.person, class: 'medium-only' },
          { label: t.events.received, class: 'numeric' },
        ]}
      >
        {events.map((event) => (
          <EventRow key={event.accountId} event={event} />
        ))}
      </Table>
    </Panel>
  )
}

function EventRow({ event }: { event: Json<FoundEvent> }) {
  const { t } = useLocalized()
  const { accountId, accountName, receivedAt, id, kind, userId, failure } = event
  return (
    <tr>
      <th scope="row" class="col-account">
        {id === null ? t.search.notStored : <Link href={`/events/${id}`}>{kind}</Link>}
      </th>
      <td>
        <Link href={`/accounts/${accountId}`}>{accountName}</Link>
      </td>
      <td>
        {id !== null && (
          <span class={`tag ${failure === null ? 'good' : 'bad'}`}>
            {failure === null ? t.events.wasApplied : t.search.notApplied}
          </span>
        )}
      </td>
      <td class="medium-only clip">
        {userId === null ? (
          <span class="muted">–</span>
        ) : (
          <Link href={`/audience/${accountId}/${encodeURIComponent(userId)}`}>{userId}</Link>
        )}
      </td>
      <td class="numeric">
        <Time at={receivedAt} />
      </td>
    </tr>
  )
}
