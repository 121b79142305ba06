/** One member: profile, fields set by clients, and timeline. */
import type { Member } from '../../src/audience/member.ts'
import type { MemberChanges, TimelineEntry } from '../../src/audience/member-details.ts'
import { type Json, queryOf } from '../api.ts'
import { useList } from '../hooks.ts'
import { pathOf, useRead } from '../operations.ts'
import { ActivityLink } from '../parts/activity.tsx'
import { DialogButton } from '../parts/dialog.tsx'
import { MemberDialog } from '../parts/member-form.tsx'
import { Facts, Page, Panel } from '../parts/page.tsx'
import {
  ErasePerson,
  ExportPerson,
  Memberships,
  type PersonAccounts,
  usePersonAccounts,
} from '../parts/person.tsx'
import { Failure, ListView, Loaded } from '../parts/states.tsx'
import { Avatar, CopyButton, Count, Payload, Time } from '../parts/values.tsx'
import { Link } from '../router.tsx'
import { useRole } from '../session.ts'
import { cameFrom, describeChanges, describeEffect } from '../texts/service.ts'
import { fill, stateIn, useLocalized } from '../texts.ts'
import { Relationship, Tags } from './audience.tsx'

interface MemberProps {
  account: string
  user: string
}

export function MemberPage({ account, user }: MemberProps) {
  const { t } = useLocalized()
  const query = useRead('account.member', account, { user })
  const isManager = useRole('manager')
  const member = query.data?.member
  const { accounts, error: failure } = usePersonAccounts(account, member?.userId ?? null)
  const name = accounts?.account.name
  const trail = (
    <Link href={`/accounts/${account}/audience`}>
      {name === undefined ? t.audience.title : fill(t.audience.of, { account: name })}
    </Link>
  )
  if (member === undefined) {
    return (
      <Page title={user} trail={trail}>
        <Loaded query={query} />
      </Page>
    )
  }
  return (
    <Page
      title={member.displayName ?? t.audience.noName}
      trail={trail}
      lead={
        <span class="person">
          <Avatar name={member.displayName} id={member.userId} />
          <code>{member.userId}</code>
          <CopyButton text={member.userId} label={t.audience.userId} />
        </span>
      }
      actions={
        <>
          <ExportPerson account={account} userId={member.userId} />
          {isManager && (
            <>
              <DialogButton label={t.member.editFields}>
                {(close) => (
                  <MemberDialog
                    account={account}
                    member={member}
                    onClose={close}
                    onSaved={() => {
                      close()
                      query.reload()
                    }}
                  />
                )}
              </DialogButton>
              <DialogButton
                class="danger quiet-danger"
                label={t.member.erase}
                isDisabled={accounts === undefined}
              >
                {(close) => accounts && <ErasePerson accounts={accounts} member={member} onClose={close} />}
              </DialogButton>
            </>
          )}
        </>
      }
    >
      {failure && <Failure error={failure} />}
      <div class="columns">
        <Profile member={member} accounts={accounts} />
        <ClientFields member={member} />
        <EndpointsOf account={account} userId={member.userId} />
      </div>
      <Timeline key={member.version} account={account} user={user} />
      <ActivityLink kind="member" id={String(member.id)} account={account} />
    </Page>
  )
}

function Profile({ member, accounts }: { member: Member; accounts: PersonAccounts | undefined }) {
  const { t, relative } = useLocalized()
  const { conversation } = member
  return (
    <Panel title={t.member.profile}>
      <Facts
        items={[
          [
            t.common.account,
            accounts && <Link href={`/accounts/${accounts.account.id}`}>{accounts.account.name}</Link>,
          ],
          accounts !== undefined &&
            accounts.others.length > 0 && [
              t.member.otherAccounts,
              <Memberships key="o" memberships={accounts.others} />,
            ],
          [t.member.relationship, <Relationship key="r" value={member.relationship} />],
          [t.member.followedAt, <Time key="f" at={member.followedAt} />],
          [t.member.blockedAt, <Time key="b" at={member.blockedAt} />],
          [t.member.cameFrom, cameFrom(member.source)],
          [t.member.firstSeen, <Time key="s" at={member.firstSeenAt} />],
          [t.member.lastSeen, <Time key="l" at={member.lastSeenAt} />],
          [t.member.events, <Count key="e" value={member.eventCount} />],
          [t.member.language, member.language],
          conversation !== null && [
            t.member.conversation,
            `${conversation.status ?? t.common.unknown} · ${relative(conversation.updatedAt)}`,
          ],
        ]}
      />
    </Panel>
  )
}

function ClientFields({ member }: { member: Member }) {
  const { t } = useLocalized()
  return (
    <Panel title={t.member.clientFields}>
      <Facts
        items={[
          [t.member.externalId, member.externalId],
          [t.audience.tags, <Tags key="t" tags={member.tags} max={Number.POSITIVE_INFINITY} />],
          [t.member.version, String(member.version)],
        ]}
      />
      <h3>{t.member.attributes}</h3>
      <Payload text={JSON.stringify(member.attributes, null, 2)} isShort />
    </Panel>
  )
}

/** Which endpoints receive the messages of the member. */
function EndpointsOf({ account, userId }: { account: string; userId: string }) {
  const { t } = useLocalized()
  const query = useRead('endpoint.of-person', null, { account, user: userId })
  return (
    <Panel title={t.member.endpoints}>
      <Loaded query={query}>
        {({ endpoints }) => (
          <ul>
            {endpoints.length === 0 && <li class="muted">{t.member.noEndpoint}</li>}
            {endpoints.map(({ id, name, mayReply }) => (
              <li key={id}>
                <Link href={`/endpoints/${id}`}>{name || t.endpoints.noName}</Link>
                {mayReply && ` · ${t.member.mayReply}`}
              </li>
            ))}
          </ul>
        )}
      </Loaded>
    </Panel>
  )
}

type Entry = Json<TimelineEntry>

function Timeline({ account, user }: MemberProps) {
  const { t, dateTime } = useLocalized()
  const path = pathOf('account.timeline', account) + queryOf({ user })
  const list = useList<Entry>(path, 'timeline')
  return (
    <Panel title={t.member.timeline}>
      <p class="muted small-text">{t.member.timelineLead}</p>
      <ListView list={list} empty={<p class="muted">{t.member.timelineEmpty}</p>}>
        {(entries) => (
          <ol class="timeline">
            {entries.map((entry, index) => (
              <li key={`${entry.at}-${entry.eventId}-${index}`} class={`from-${entry.source}`}>
                <time dateTime={entry.at}>{dateTime(entry.at)}</time>
                <span class="what">
                  {entry.eventId === null ? (
                    <b>{t.member.edit}</b>
                  ) : (
                    <>
                      <Link href={`/events/${entry.eventId}`}>{stateIn(t.eventKinds.line, entry.kind)}</Link>
                      <span class="tag">{stateIn(t.events.sources, entry.source)}</span>
                    </>
                  )}
                  <span class="effect">{describeEffect(t, entry.effect)}</span>
                  {entry.effect.kind === 'edited' && <EditChanges changes={entry.effect.changes} />}
                </span>
              </li>
            ))}
          </ol>
        )}
      </ListView>
    </Panel>
  )
}

/** @param changes null: an edit that is too large to keep */
function EditChanges({ changes }: { changes: Json<MemberChanges> | null }) {
  const { t } = useLocalized()
  if (changes === null) return null
  return (
    <ul class="changes">
      {describeChanges(t, changes as MemberChanges).map(({ field, before, after, isTags }) => (
        <li key={field}>
          <span class="mono">{field}</span> {(before !== null || !isTags) && <del>{before ?? '—'}</del>}
          {isTags ? ' ' : ' → '}
          {(after !== null || !isTags) && <ins>{after ?? '—'}</ins>}
        </li>
      ))}
    </ul>
  )
}
