/** One member: profile, fields set by clients, and timeline. */
import { useCallback, useState } from 'preact/hooks'
import type { Member } from '../../src/audience/member.ts'
import type { MemberChanges, TimelineEntry } from '../../src/operator/members/members.ts'
import { describeChanges, describeEffect } from '../../src/operator/members/timeline-texts.ts'
import { get, type Json, post, queryOf } from '../api.ts'
import { useAction, useList, useQuery } from '../hooks.ts'
import { ActivityPanel } from '../parts/activity.tsx'
import { Confirm } from '../parts/dialog.tsx'
import { ExportPerson } from '../parts/exports.tsx'
import { MemberDialog } from '../parts/member-form.tsx'
import { Facts, Page, Panel } from '../parts/page.tsx'
import { ActionFailure, Empty, Failure, ListView, Loading } from '../parts/states.tsx'
import { Avatar, CopyButton, Count, Payload, Time } from '../parts/values.tsx'
import { Link } from '../router.tsx'
import { useRole } from '../session.ts'
import { describeFailure } from '../texts/failures.ts'
import { useLocalized } from '../texts.ts'
import { Relationship, Tags } from './audience.tsx'

interface MemberProps {
  account: string
  user: string
}

export function MemberPage({ account, user }: MemberProps) {
  const { t } = useLocalized()
  const path = `/api/accounts/${account}/members/${encodeURIComponent(user)}`
  const { data, error, reload } = useQuery<{ member: Member }>(path)
  const [isErasing, setErasing] = useState(false)
  const [isErased, setErased] = useState(false)
  const [isEditing, setEditing] = useState(false)
  const isManager = useRole('manager')
  const trail = <Link href={`/audience/${account}`}>{t.nav.audience}</Link>
  const member = data?.member
  if (isErased) {
    return (
      // A separate page, so that its title takes the focus of the closed dialog.
      <Page key="erased" title={t.member.erased} trail={trail}>
        <Empty title={t.member.erased}>
          <Link href={`/audience/${account}`}>{t.member.backToAudience}</Link>
        </Empty>
      </Page>
    )
  }
  if (member === undefined) {
    return (
      <Page title={user} trail={trail}>
        {error ? <Failure error={error} retry={reload} /> : <Loading />}
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
              <button type="button" onClick={() => setEditing(true)}>
                {t.member.editFields}
              </button>
              <button type="button" class="danger quiet-danger" onClick={() => setErasing(true)}>
                {t.member.erase}
              </button>
            </>
          )}
        </>
      }
    >
      <div class="columns">
        <Profile member={member} />
        <ClientFields member={member} />
      </div>
      <Timeline key={member.version} path={path} />
      <ActivityPanel
        key={`activity-${member.version}`}
        kind="member"
        id={String(member.id)}
        account={account}
      />
      {isEditing && (
        <MemberDialog
          {...{ account, member }}
          onClose={() => setEditing(false)}
          onSaved={() => {
            setEditing(false)
            reload()
          }}
        />
      )}
      {isErasing && (
        <Erase
          account={account}
          member={member}
          onClose={() => setErasing(false)}
          onErased={() => setErased(true)}
        />
      )}
    </Page>
  )
}

function Profile({ member }: { member: Member }) {
  const { t, relative } = useLocalized()
  const { conversation } = member
  return (
    <Panel title={t.member.profile}>
      <Facts
        items={[
          [t.member.relationship, <Relationship key="r" value={member.relationship} />],
          [t.member.followedAt, <Time key="f" at={member.followedAt} />],
          [t.member.blockedAt, <Time key="b" at={member.blockedAt} />],
          [t.member.firstSeen, <Time key="s" at={member.firstSeenAt} />],
          [t.member.lastSeen, <Time key="l" at={member.lastSeenAt} />],
          [t.member.events, <Count key="e" value={member.eventCount} />],
          [t.member.language, member.language],
          [
            t.member.conversation,
            conversation &&
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

type Entry = Json<TimelineEntry>

function Timeline({ path }: { path: string }) {
  const { t, dateTime } = useLocalized()
  const load = useCallback(
    (cursor: string | null, signal: AbortSignal) =>
      get<{ entries: Entry[]; nextCursor: string | null }>(
        `${path}/timeline${queryOf({ cursor })}`,
        signal,
      ).then(({ entries, nextCursor }) => ({ items: entries, next: nextCursor })),
    [path],
  )
  const list = useList(load)
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
                      <Link href={`/events/${entry.eventId}`}>{entry.kind}</Link>
                      <span class="tag">{entry.source}</span>
                    </>
                  )}
                  <span class="effect">
                    {describeEffect(t.member.timelineTexts, entry.effect, (failure) =>
                      describeFailure(t.eventFailures, failure),
                    )}
                  </span>
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
      {describeChanges(t.member.timelineTexts, changes as MemberChanges).map(
        ({ field, before, after, isTags }) => (
          <li key={field}>
            <span class="mono">{field}</span> {(before !== null || !isTags) && <del>{before ?? '—'}</del>}
            {isTags ? ' ' : ' → '}
            {(after !== null || !isTags) && <ins>{after ?? '—'}</ins>}
          </li>
        ),
      )}
    </ul>
  )
}

function Erase({
  account,
  member,
  onClose,
  onErased,
}: {
  account: string
  member: Member
  onClose: () => void
  onErased: () => void
}) {
  const { t } = useLocalized()
  const { isRunning, error, run } = useAction()
  const [typed, setTyped] = useState('')
  const expected = member.displayName?.trim() || member.userId
  return (
    <Confirm
      title={t.member.eraseTitle}
      text={t.member.eraseText}
      submit={t.member.eraseSubmit}
      isRunning={isRunning}
      isAllowed={[expected, member.userId].includes(typed.trim())}
      onClose={onClose}
      onConfirm={() =>
        run(async () => {
          await post(`/api/accounts/${account}/members/${member.id}/erase`)
          onErased()
        })
      }
    >
      <label class="field">
        <span>{t.member.eraseConfirm(expected)}</span>
        <input
          type="text"
          autocomplete="off"
          spellcheck={false}
          value={typed}
          onInput={(event) => setTyped(event.currentTarget.value)}
        />
      </label>
      <ActionFailure error={error} />
    </Confirm>
  )
}
