/** What a name or an id finds in all accounts: people with their memberships, and accounts. */
import type { FoundAccount, FoundPerson, SearchResult } from '../../src/operations/search.ts'
import { type Json, queryOf } from '../api.ts'
import { useQuery } from '../hooks.ts'
import { ActivityList } from '../parts/activity.tsx'
import { AccountChooser } from '../parts/chooser.tsx'
import { Page, Panel } from '../parts/page.tsx'
import { Empty, Loaded } from '../parts/states.tsx'
import { Table } from '../parts/table.tsx'
import { Avatar, CopyButton, Optional, Time } from '../parts/values.tsx'
import { Link, navigate } from '../router.tsx'
import { useLocalized } from '../texts.ts'
import { Relationship, Tags } from './audience.tsx'

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
  const { people, accounts, activity, isComplete, hasMore } = result
  const isEmpty = people.length + accounts.length + activity.length === 0
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
      {people.length > 0 && (
        <Panel title={t.search.people} class="found">
          {people.map((person) => (
            <Person key={person.userId} person={person} />
          ))}
        </Panel>
      )}
      {accounts.length > 0 && <Accounts accounts={accounts} />}
      {WEBHOOK_EVENT_ID.test(text) && (
        <p>
          <Link href={`/events${queryOf({ key: text })}`}>{t.search.event}</Link>
        </p>
      )}
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
          onChoose={(account) =>
            account && navigate(`/accounts/${account.id}/audience${queryOf({ q: text })}`)
          }
        />
      </div>
    </>
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
        rows={memberships}
        keyOf={({ accountId }) => accountId}
        columns={[
          [
            t.audience.member,
            ({ accountId, displayName, externalId }) => (
              <>
                <Link href={`/accounts/${accountId}/audience/${encodeURIComponent(userId)}`}>
                  {displayName ?? t.audience.noName}
                </Link>
                {externalId !== null && <div class="sub narrow-only">{externalId}</div>}
              </>
            ),
          ],
          [
            t.common.account,
            ({ accountId, accountName }) => <Link href={`/accounts/${accountId}`}>{accountName}</Link>,
          ],
          [t.audience.relationship, ({ relationship }) => <Relationship value={relationship} />],
          [t.member.externalId, ({ externalId }) => <Optional value={externalId} />, 'medium-only', 'clip'],
          [t.audience.tags, ({ tags }) => <Tags tags={tags} />, 'wide-only'],
          [t.audience.lastSeen, ({ lastSeenAt }) => <Time at={lastSeenAt} />, 'numeric medium-only'],
        ]}
      />
    </section>
  )
}

function Accounts({ accounts }: { accounts: Array<Json<FoundAccount>> }) {
  const { t } = useLocalized()
  return (
    <Panel title={t.search.accounts} class="found">
      <Table
        rows={accounts}
        columns={[
          [
            t.common.account,
            ({ id, name, organizationName }) => (
              <>
                <Link href={`/accounts/${id}`}>{name}</Link>
                <div class="sub">
                  {organizationName} · <Link href={`/accounts/${id}/audience`}>{t.audience.title}</Link>
                </div>
              </>
            ),
          ],
          [t.account.basicId, ({ basicId }) => <Optional value={basicId} />],
          [t.account.channelId, ({ channelId }) => <Optional value={channelId} />, 'medium-only'],
          [t.search.accountId, ({ id }) => id, 'numeric'],
        ]}
      />
    </Panel>
  )
}
