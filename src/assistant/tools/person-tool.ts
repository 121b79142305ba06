/** One person of an account. */
import { type Member, USER_ID_MAX_LENGTH } from '../../audience/member.ts'
import { parsePathId } from '../../http/path-id.ts'
import { refuseInput, StorableText } from '../../http/validate.ts'
import {
  findMember,
  memberTimeline,
  type TimelineEntry,
  type TimelinePosition,
} from '../../operator/members/members.ts'
import { After, absent, Id, Limit, limitOf, ofAccount, requireAccount, tool } from '../tool.ts'
import { personal, type Untrusted, untrusted } from '../untrusted.ts'

/** Tags of one person that are shown. */
const TAGS_MAX = 50

export const showPerson = tool(
  {
    name: 'show_person',
    title: 'Show a person of an account',
    description:
      'Shows one person by the id that you were given: relationship to the account, counts, and what happened, newest first. Names, tags and other personal text are masked unless the operator decided otherwise. The contents of messages are never shown.',
  },
  {
    accountId: Id('id of the account'),
    id: StorableText({
      minLength: 1,
      maxLength: USER_ID_MAX_LENGTH,
      description: "the person's user id of LINE, or the id of the member",
    }),
    limit: Limit,
    after: After,
  },
  async (context, input) => {
    const account = await requireAccount(context, input.accountId)
    const { database, showPersonalData } = context
    const member = await findMember(database, account.id, input.id, parsePathId(input.id))
    if (member === null) throw absent('person of this account')
    const after = input.after === undefined ? null : positionOf(input.after)
    const { entries, next } = await memberTimeline(database, account.id, member, limitOf(input), after)
    return {
      facts: { accountId: account.id, member: memberOf(member, showPersonalData) },
      list: {
        name: 'timeline',
        rows: entries.map((entry, index) => ({
          row: entryOf(entry, showPersonalData),
          cursor:
            next !== null && index === entries.length - 1 ? `${next.atUs}.${next.part}.${next.id}` : null,
        })),
        hasMore: next !== null,
      },
      subject: { ...ofAccount(account), object: { kind: 'member', id: BigInt(member.id) } },
    }
  },
)

function positionOf(text: string): TimelinePosition {
  const [, atUs, part, id] = /^(-?\d{1,18})\.([12])\.(\d{1,18})$/.exec(text) ?? []
  if (atUs === undefined || part === undefined || id === undefined)
    refuseInput('after', 'is not `next` of this list')
  return { atUs: BigInt(atUs), part: Number(part), id: BigInt(id) }
}

function memberOf(member: Member, showPersonalData: boolean) {
  const shown = (text: string | null): Untrusted | null => personal(text, showPersonalData)
  const { relationship, followedAt, blockedAt, firstSeenAt, lastSeenAt, eventCount, version } = member
  return {
    id: member.id,
    displayName: shown(member.displayName),
    externalId: shown(member.externalId),
    tags: member.tags.slice(0, TAGS_MAX).map(shown),
    attributes: shown(JSON.stringify(member.attributes)),
    ...{ relationship, followedAt, blockedAt, firstSeenAt, lastSeenAt, eventCount, version },
    conversation: member.conversation && {
      status: shown(member.conversation.status),
      updatedAt: member.conversation.updatedAt,
    },
    createdAt: member.createdAt,
    updatedAt: member.updatedAt,
  }
}

/** Without the values of an edit. */
function entryOf({ at, source, kind, effect, eventId }: TimelineEntry, showPersonalData: boolean) {
  const entry = { at, source, kind: untrusted(kind), eventId, effect: effect.kind }
  if (effect.kind === 'not_applied') return { ...entry, reason: untrusted(effect.failure) }
  if (effect.kind !== 'edited') return entry
  const { fields, by } = effect
  if (by === null) return { ...entry, fields, by: null }
  if ('actor' in by) return { ...entry, fields, by: { actor: personal(by.actor, showPersonalData) } }
  return { ...entry, fields, by: { keyId: by.keyId, clientName: untrusted(by.clientName) } }
}
