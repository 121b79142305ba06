/** The people of an account: search, one of them with a timeline, edits, and erasure. The id of a member is unique in its account only. */
import type { VisibleAccount } from '../accounts/manage-accounts.ts'
import { scopeOfAccount } from '../accounts/scope.ts'
import { readFilters } from '../audience/filters.ts'
import { countMatching, readJsonPage } from '../audience/list-pages.ts'
import { type Member, TAG_MAX_LENGTH } from '../audience/member.ts'
import {
  eraseMember,
  findMember,
  findMemberships,
  MEMBERSHIPS_MAX,
  memberTimeline,
  readTimelinePosition,
  updateMember,
} from '../audience/member-details.ts'
import { listSuggestions } from '../audience/suggestions.ts'
import { checkUpdate, TAGS_MAX } from '../audience/update.ts'
import { USER_ID_MAX_LENGTH } from '../config/limits.ts'
import { AppError, NotVisible, refuseRequest } from '../errors.ts'
import { parsePathId } from '../http/path-id.ts'
import { Type } from '../http/typebox.ts'
import { IdText, refuseInput, StorableText } from '../http/validate.ts'
import { startErasingMatching, startErasures } from '../jobs/erase-members.ts'
import { startJob } from '../jobs/job.ts'
import { FILE_MAX_BYTES } from '../jobs/job-file.ts'
import { startTagging } from '../jobs/tag-members.ts'
import type { Queryable, Transactions } from '../postgres/statement.ts'
import { ACCOUNT } from './accounts.ts'
import { Id, type InputOf, ShortText } from './fields.ts'
import { operationsOf } from './operation.ts'
import { ConditionText, FILTERS, FilterSchema } from './replays.ts'

const { read, call } = operationsOf({ ...ACCOUNT, mayBeOld: true }, 'now', 'counted', 'erasureLedger')

/** Members that are shown as examples. */
const EXAMPLES = 3

const UserId = StorableText({ minLength: 1, maxLength: USER_ID_MAX_LENGTH })
const USER = { user: Object.assign(UserId, { description: 'user id of LINE, or id of the member' }) }
/** expectedCount: the number that the operator has confirmed */
const MATCHING = { filters: FilterSchema, expectedCount: Type.Integer({ minimum: 0 }) }
const Tags = Type.Array(StorableText({ minLength: 1, maxLength: TAG_MAX_LENGTH }), { maxItems: TAGS_MAX })

async function memberOf(database: Queryable, { id }: VisibleAccount, user: string): Promise<Member> {
  const member = await findMember(database, id, user, parsePathId(user))
  if (member === null) throw new NotVisible('person of this account', id)
  return member
}

async function countOf(database: Queryable, account: VisibleAccount, given: InputOf<typeof FILTERS>) {
  const filters = await readFilters(database, account.id, given)
  return { filters, count: () => countMatching(database, scopeOfAccount(account), filters) }
}

/** The job is recorded by what starts it. */
const started = async (database: Transactions, start: (transaction: Queryable) => Promise<bigint>) => ({
  job: await database.transaction(start),
  changes: null,
})

export const MEMBERS = {
  list: read({
    name: 'account.members',
    does: 'list members',
    input: { ...FILTERS, cursor: Type.Optional(Type.String()) },
    run: async ({ database, target, input: { cursor, ...given } }, { limit }) => {
      const filters = await readFilters(database, target.id, given)
      const page = await readJsonPage(database, scopeOfAccount(target), filters, cursor, limit)
      return { data: JSON.parse(`[${page.lines}]`) as Member[], nextCursor: page.nextCursor }
    },
  }),

  find: read({
    name: 'account.member',
    does: 'see a member',
    input: USER,
    run: async ({ database, target, input }) => ({ member: await memberOf(database, target, input.user) }),
  }),

  timeline: read({
    name: 'account.timeline',
    does: 'see the timeline of a member',
    input: { ...USER, after: Type.Optional(ShortText) },
    run: async ({ database, target, input: { after, user } }, { limit }) => {
      const position = after === undefined ? null : readTimelinePosition('after', after)
      const member = await memberOf(database, target, user)
      const { entries, next } = await memberTimeline(database, target.id, member, limit, position)
      return { timeline: entries, next }
    },
  }),

  memberships: read({
    name: 'account.memberships',
    does: 'see of which accounts a person is a member',
    input: { userId: UserId },
    run: async ({ database, actor, target: { id, name }, input: { userId } }) => ({
      account: { id, name },
      memberships: await findMemberships(database, actor.organizationIds, userId),
    }),
  }),

  count: read({
    name: 'account.count-members',
    does: 'count members that match',
    input: FILTERS,
    run: async ({ database, actor, target, services, input }) => {
      const { count } = await countOf(database, target, input)
      return { count: await services.counted(actor, count) }
    },
  }),

  /** For the editor of conditions, before anything is saved. */
  matching: read({
    name: 'account.matching',
    does: 'count members for whom a condition holds, with examples',
    input: { condition: ConditionText },
    run: async ({ database, actor, target, services, input }) => {
      const filters = await readFilters(database, target.id, input)
      const scope = scopeOfAccount(target)
      const count = await services.counted(actor, () => countMatching(database, scope, filters))
      const { lines } = await readJsonPage(database, scope, filters, undefined, EXAMPLES)
      const examples = JSON.parse(`[${lines}]`) as Member[]
      return { count, examples: examples.map(({ userId, displayName }) => ({ userId, displayName })) }
    },
  }),

  suggestions: read({
    name: 'account.suggestions',
    does: 'see which tags and sources members have',
    run: ({ database, target }) => listSuggestions(database, target.id),
  }),

  /** `version` is the one that the form shows, so that two people who edit the same member do not overwrite each other. */
  update: call({
    name: 'account.update-member',
    does: 'change a member',
    records: 'member.updated',
    input: { member: Id('id of the member'), version: IdText(), update: Type.Unknown() },
    run: async ({ database, actor, target, input: { member, version, update } }) => {
      const changed = checkUpdate(update)
      const { json } = await updateMember(database, actor, target, member, changed, BigInt(version))
      return { result: { member: JSON.parse(json) as Member }, changes: null }
    },
  }),

  erase: call({
    name: 'account.erase-member',
    does: 'erase a person',
    records: 'member.erased',
    input: { member: Id('id of the member') },
    run: async ({ database, actor, target, services: { erasureLedger, now }, input: { member } }) => {
      if (!(await eraseMember(database, await erasureLedger(), actor, target, member, now)))
        throw new NotVisible('member', member)
      return { changes: null }
    },
  }),

  /** `accounts` are those that the page showed, so nobody is erased from an account that the operator did not confirm. */
  erasePerson: call({
    name: 'account.erase-person',
    does: 'erase a person from several accounts',
    records: 'job.started',
    input: { userId: UserId, accounts: Type.Array(IdText(), { minItems: 1, maxItems: MEMBERSHIPS_MAX }) },
    run: async ({ database, actor, input: { userId, accounts } }) => {
      const memberships = await findMemberships(database, actor.organizationIds, userId)
      const chosen = memberships.filter(({ accountId }) => accounts.includes(String(accountId)))
      if (chosen.length === 0) throw new AppError('unknown_item')
      return started(database, (transaction) => startErasures(transaction, actor, chosen))
    },
  }),

  /** It counts before the transaction, as an erasure of all that match. */
  tagMatching: call({
    name: 'account.tag-members',
    does: 'change tags of all that match',
    records: 'members.tagged',
    input: { ...MATCHING, addTags: Tags, removeTags: Tags },
    run: async ({ database, actor, target, services, input: { expectedCount: expected, ...input } }) => {
      const [add, remove] = [[...new Set(input.addTags)], [...new Set(input.removeTags)]]
      requireChange(add, remove)
      const { filters, count } = await countOf(database, target, input.filters)
      const counts = { count: await services.counted(actor, count), expected }
      const change = { filters, add, remove }
      return started(database, (transaction) => startTagging(transaction, actor, target, change, counts))
    },
  }),

  eraseMatching: call({
    name: 'account.erase-members',
    does: 'erase all that match',
    records: 'job.started',
    input: MATCHING,
    run: async ({ database, actor, target, services, input: { expectedCount: expected, ...input } }) => {
      const { filters, count } = await countOf(database, target, input.filters)
      const counts = { count: await services.counted(actor, count), expected }
      return started(database, (transaction) =>
        startErasingMatching(transaction, actor, target, filters, counts),
      )
    },
  }),

  /** The upload follows, in pieces that fit into a body. The job is recorded with the last one. */
  import: call({
    name: 'account.import-members',
    does: 'import members',
    records: 'job.started',
    input: {
      format: Type.Enum(['csv', 'ndjson']),
      size: Type.Integer({ minimum: 1, maximum: FILE_MAX_BYTES }),
    },
    run: async ({ database, actor, target: { id: accountId, organizationId }, input: parameters }) => {
      const job = { kind: 'members.import', accountId, organizationId, parameters } as const
      const upload = { ...job, total: parameters.size, status: 'uploading' } as const
      return started(database, (transaction) => startJob(transaction, actor, upload, null))
    },
  }),
}

function requireChange(add: string[], remove: string[]): void {
  if (add.length + remove.length === 0) refuseRequest('Add or remove at least one tag')
  const both = add.find((tag) => remove.includes(tag))
  if (both !== undefined) refuseInput('removeTags', 'has a tag that is also added')
}
