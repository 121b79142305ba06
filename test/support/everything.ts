/** All that clients, senders and operators do with the members and events of one tenant. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { findAccount } from '../../src/accounts/account.ts'
import { finishErasures, storePending } from '../../src/accounts/erasure-lock.ts'
import { findAccountContents } from '../../src/accounts/remove-account.ts'
import { readLedgerStatus, requireLedgerErasures } from '../../src/audience/erasure/compare-ledger.ts'
import { eraseUser } from '../../src/audience/erasure/erase.ts'
import { ErasureLedger } from '../../src/audience/erasure/erasure-ledger.ts'
import { reapplyLedger } from '../../src/audience/erasure/reapply-erasures.ts'
import { eventLines } from '../../src/audience/export/export-events.ts'
import { findPerson, personJson } from '../../src/audience/export/export-person.ts'
import { importNextFollowers } from '../../src/audience/import/import-followers.ts'
import { countMatching, readIds } from '../../src/audience/list-pages.ts'
import { memberLines } from '../../src/audience/list-route.ts'
import {
  findMember,
  type Membership,
  memberTimeline,
  selectMemberships,
} from '../../src/audience/member-details.ts'
import { ProfileFiller } from '../../src/audience/profiles.ts'
import { importEntries } from '../../src/audience/update-members.ts'
import { listEventDeliveries } from '../../src/endpoints/event-deliveries.ts'
import { countReplay, findReplayable, planReplay } from '../../src/endpoints/replays.ts'
import { rehearse } from '../../src/endpoints/repliers.ts'
import { Sender } from '../../src/endpoints/sender.ts'
import { type EventFilter, type EventPage, listAllEvents } from '../../src/intake/list-events.ts'
import { retryEvent } from '../../src/intake/retry-events.ts'
import {
  countUnapplied,
  listFailureReasons,
  nextFailedEvents,
  setEventsAside,
} from '../../src/intake/stored-events.ts'
import { startReplay, startResend } from '../../src/jobs/send-again.ts'
import { startTagging } from '../../src/jobs/tag-members.ts'
import { takeTurn } from '../../src/jobs/turn.ts'
import { LineApi } from '../../src/line-api/client.ts'
import { searchPeople } from '../../src/operations/search.ts'
import { ALL_ORGANIZATIONS, commandActor } from '../../src/operators/actor.ts'
import { skipTakenMemberIds } from '../../src/postgres/schema/taken-ids.ts'
import { refreshDueFigures } from '../../src/watch/account-figures.ts'
import { takeDueAccounts } from '../../src/watch/account-monitor.ts'
import { readFleetCharts } from '../../src/watch/fleet.ts'
import { findFleetAccount } from '../../src/watch/fleet-facts.ts'
import { removeAccount } from '../../tools/remove-account.ts'
import { addPeople } from '../../tools/simulator/deliveries.ts'
import { lineEvent, textMessage } from '../../tools/simulator/events.ts'
import type { SimulatedPlatform } from '../../tools/simulator/platform.ts'
import type { TextDatabase } from '../../tools/text-database.ts'
import type { Tenant } from './database.ts'
import { load } from './load.ts'
import { eventually } from './process.ts'
import type { Service } from './service.ts'

interface Users {
  service: Service
  database: TextDatabase
  /** writes rows as other programs do */
  direct: TextDatabase
  platform: SimulatedPlatform
  /** with the credentials of the platform's account, and the members that addMembers adds */
  tenant: Tenant
}

export const LISTS = [
  '',
  'userId=U1',
  'externalId=E1',
  'relationship=following',
  'tag=vip',
  'q=Ann',
  'q=A',
  'updatedSince=2020-01-01T00:00:00Z',
]
export const FORMATS = ['application/json', 'application/x-ndjson', 'text/csv']

/** Four members with the same ids, tags and names at both tenants. */
export async function addMembers(
  { service, direct }: Pick<Users, 'service' | 'direct'>,
  to: Tenant,
): Promise<void> {
  const people = ['U1', 'U2', 'U3', 'U4']
  await service.deliver(
    to,
    people.map((userId) => lineEvent('follow', userId)),
  )
  await service.deliver(to, [
    lineEvent('memberJoined', 'U1', {
      source: { type: 'group', groupId: 'C1', userId: 'U1' },
      joined: { members: [{ type: 'user', userId: 'U2' }] },
    }),
    { ...textMessage('U1', 'hello'), message: { type: 'text', id: 'M1', text: 'hello' } },
    lineEvent('message', 'U1', { timestamp: 'never' }),
  ])
  // Refused, and kept.
  await service.deliver({ ...to, channelSecret: 'another' }, [lineEvent('message', 'U1')])
  await service.track(to, [{ type: 'track', userId: 'U1', messageId: 'T1' }])
  await load(
    direct,
    `update audience_member set external_id = 'E' || substr(user_id, 2), tags = '{vip}',
                               display_name = 'Ann', profile_due_at = null
      where channel_oa_id = $1 and user_id = any ($2)`,
    [to.accountId, people],
  )
  await load(
    direct,
    `insert into segment (channel_oa_id, name, condition) values ($1, 'Vips', '{"tagsAny":["vip"],"eventCountMin":1}')
         on conflict do nothing`,
    [to.accountId],
  )
}

/** Executes every statement of the service over members and events. Returns what a client or an operator sees. */
export async function useEverything(users: Users): Promise<string[]> {
  const { service, database, direct, platform, tenant } = users
  const { headers } = tenant
  const answers = []
  // A segment has no statement of its own.
  for (const query of [...LISTS, 'segment=Vips']) {
    for (const accept of FORMATS)
      answers.push(await service.call('GET', `/api/audience?${query}`, { headers: { ...headers, accept } }))
  }
  const idOf = async (userId: string) => (await service.member(tenant, userId))?.id
  const update = { headers: { ...headers, 'content-type': 'application/json' }, body: '{"tags":["changed"]}' }
  answers.push(await service.call('PUT', `/api/audience/${await idOf('U2')}`, update))
  const stale = { ...update, headers: { ...update.headers, 'if-match': '"99"' } }
  answers.push(await service.call('PUT', `/api/audience/${await idOf('U2')}`, stale))
  await service.deliver(tenant, [
    lineEvent('unsend', 'U1', { unsend: { messageId: 'M1' } }),
    lineEvent('unfollow', 'U3'),
    lineEvent('botSuspended', null),
    lineEvent('botResumed', null),
  ])
  await service.deliver({ ...tenant, botUserId: 'another bot' }, [lineEvent('unfollow', 'U4')])
  await service.chat(tenant, {
    event: 'conversation_updated',
    id: 1,
    status: 'open',
    contact_inbox: { source_id: 'U1' },
    channel: 'Channel::Line',
  })
  const printed = [...(await useCommands(users)), ...(await useJobs(users)), ...(await useEndpoints(users))]
  await load(
    direct,
    `update audience_member set profile_due_at = now() where channel_oa_id = $1 and user_id in ('U1', 'U2')`,
    [tenant.accountId],
  )
  await new ProfileFiller(database, new LineApi(platform.url)).pass()
  await takeDueAccounts(database, 1)
  while ((await refreshDueFigures(database)) > 0);
  await findFleetAccount(database, null, tenant.accountId)
  await readFleetCharts(database, null, [tenant.accountId])
  await database.query(storePending, [tenant.accountId, tenant.organizationId, 99n, 'U9', 0n])
  await finishErasures(database)
  await skipTakenMemberIds(database.pipeline, [tenant.accountId])
  answers.push(await service.call('DELETE', `/api/audience/${await idOf('U1')}`, { headers }))
  answers.push(
    await service.call('DELETE', '/api/audience/1', { headers: { ...headers, 'if-match': '"1"' } }),
  )
  return [...printed, ...answers.map(({ text }) => text)]
}

const FILTERS = [
  ...[{}, { userId: 'U1' }, { externalId: 'E1' }, { relationship: 'following' as const }, { tag: ['vip'] }],
  ...[{ q: 'Ann' }, { q: 'A' }],
]

/** The long work of operators. */
async function useJobs({ database, tenant }: Users): Promise<string[]> {
  const { accountId, organizationId } = tenant
  const scope = { keyId: null, accountId, organizationId }
  const counts = await Promise.all(FILTERS.map((filters) => countMatching(database, scope, filters)))
  const noEndpoint = { condition: null, replies: true, priority: 0 }
  await rehearse(database, { id: 0n, accountId: scope.accountId }, noEndpoint)
  const beginning = { kind: 'id', id: -1n, isCommonName: false } as const
  const pages = await Promise.all(FILTERS.map((filters) => readIds(database, scope, filters, beginning, 10)))
  for (const filters of [...FILTERS, { updatedSince: '2020-01-01T00:00:00.000Z' }])
    for await (const _ of memberLines(database, scope, filters, 'line-ids'));
  const change = { filters: { tag: ['vip'] }, add: ['tagged'], remove: [] }
  const [, , , , vip = 0] = counts
  await database.transaction((transaction) =>
    startTagging(transaction, commandActor(), { id: accountId, organizationId }, change, {
      ...{ count: vip, expected: vip },
    }),
  )
  await countUnapplied(database, ALL_ORGANIZATIONS, { accountId, failure: null })
  while (await takeTurn(database));
  return pages.flatMap(({ ids }) => ids.map((id) => `"id":"${id}"`))
}

/** What endpoints of both formats receive. */
async function useEndpoints({ service, database, direct, platform, tenant }: Users): Promise<string[]> {
  platform.receiver.channelSecret = tenant.channelSecret
  await load(
    direct,
    `insert into endpoint (channel_oa_id, url, format, allow_private_network)
     select $1, $2, format, true from unnest(array['line', 'members']) format`,
    [tenant.accountId, `${platform.url}/receive`],
  )
  const sender = new Sender(database, () => false)
  sender.start()
  await service.deliver(tenant, [lineEvent('follow', 'U5')])
  // Without a handover, the lease of the flush ends after 30 s.
  await load(direct, `update endpoint_delivery set leased_until = '-infinity', due_at = now()`)
  const bodies = () => platform.receipts.map(({ body }) => JSON.stringify(body))
  await eventually(
    async () => bodies().join(),
    (all) => all.includes('"destination"') && all.includes('member.created'),
  )
  await sendAgain({ database, direct, tenant }, (endpointId) => sender.expect([endpointId]))
  await sender.stop()
  await load(direct, 'delete from endpoint')
  return bodies()
}

/** A replay to the `line` endpoint and a resend to the other one. */
async function sendAgain(
  { database, direct, tenant }: Pick<Users, 'database' | 'direct' | 'tenant'>,
  onQueued: (endpointId: bigint) => void,
): Promise<void> {
  const { accountId } = tenant
  const endpoints = await load<{ id: bigint }>(
    direct,
    `select id from endpoint where channel_oa_id = $1 order by format`,
    [accountId],
  )
  const [line = 0n, members = 0n] = endpoints.map(({ id }) => id)
  const hour = 3_600_000
  const asked = {
    from: new Date(Date.now() - hour).toISOString(),
    to: new Date(Date.now() + hour).toISOString(),
    rate: 1_000,
  }
  const plan = await planReplay(database, ALL_ORGANIZATIONS, line, asked)
  const resent = await findReplayable(database, ALL_ORGANIZATIONS, members, 'members')
  // It would end 10 s before now.
  const request = { ...plan.request, to: asked.to }
  const { events } = await countReplay(database, plan.endpoint, request)
  await database.transaction(async (transaction) => {
    await startReplay(transaction, commandActor(), plan.endpoint, request, events)
    await startResend(
      transaction,
      commandActor(),
      resent,
      { filters: { relationship: 'following' }, rate: 10 },
      1,
    )
  })
  // The receiver accepts or refuses the first deliveries of both.
  await eventually(
    async () => {
      await takeTurn(database, { onQueued })
      await load(direct, `update job set leased_until = now() where status = 'running'`)
      return load(
        direct,
        `select j.id from job j
          where channel_oa_id = $1 and status = 'running' and done = 0
            and not exists (select from endpoint_delivery d where d.job_id = j.id and d.answer is not null)`,
        [accountId],
      )
    },
    (running) => running.length === 0,
  )
  await load(direct, 'delete from endpoint_delivery where job_id is not null')
  await load(direct, `update job set status = 'cancelled', finished_at = now() where status = 'running'`)
}

/** What the command line does with an account. */
async function useCommands(users: Users): Promise<string[]> {
  const { database, direct, platform, tenant } = users
  const [event] = await load<{ id: bigint }>(
    direct,
    `update event set failure = 'for once' where channel_oa_id = $1 and user_id = 'U4' returning id`,
    [tenant.accountId],
  )
  await retryEvent(database, event?.id ?? 0n)
  const unapplied = { accountId: tenant.accountId, failure: null }
  const listed = await listEverything(users)
  const reasons = await listFailureReasons(database, null, tenant.accountId)
  await listFailureReasons(database, [tenant.organizationId], tenant.accountId)
  const { ids } = await nextFailedEvents(database, ALL_ORGANIZATIONS, unapplied, null, 10)
  await setEventsAside(database, ids, 'for once')
  const account = await findAccount(database, tenant.accountId)
  addPeople(platform, 2)
  if (account === null) throw new Error('no account')
  await importNextFollowers(database, new LineApi(platform.url), account, async () => undefined)
  const scope = { keyId: null, accountId: tenant.accountId, organizationId: tenant.organizationId }
  await importEntries(database, database.pipeline, scope, [
    { userId: 'U2' },
    { userId: 'U3', tags: ['imported'] },
  ])
  await eraseUser(database.forTenant(scope), null, scope, 'U9', Date.now)
  await useLedger(users)
  const member = await findMember(database, tenant.accountId, 'U2', null)
  if (member === null) throw new Error('no member')
  const { entries: timeline } = await memberTimeline(database, tenant.accountId, member, 100)
  return [
    ...(await searchEverywhere(users)),
    ...(await exportEverything(users)),
    ...(await exportPeople(users)),
    ...listed,
    `${reasons.length} reasons`,
    JSON.stringify(member),
    `${timeline.length} entries`,
  ]
}

/** Records erasures, forgets one of them, and erases the person again. */
async function useLedger({ database, direct, tenant }: Users): Promise<void> {
  const directory = await mkdtemp(join(tmpdir(), 'ledger-'))
  const ledger = new ErasureLedger(directory)
  const requireErasures = () =>
    database.session((session) => requireLedgerErasures(session, directory, () => undefined))
  await requireErasures()
  const scope = { keyId: null, accountId: tenant.accountId, organizationId: tenant.organizationId }
  await eraseUser(database.forTenant(scope), ledger, scope, 'U8', Date.now)
  await eraseUser(database.forTenant(scope), null, scope, 'U9', Date.now)
  await ledger.recordMember(database.forTenant(scope), tenant.accountId, 1n)
  await ledger.recordAll(database)
  await requireErasures()
  await load(direct, 'delete from erased_person where channel_oa_id = $1', [tenant.accountId])
  await reapplyLedger(database, commandActor(), directory)
  await readLedgerStatus(database, directory)
  await rm(directory, { recursive: true })
}

/** The accounts of all events that an export contains. */
async function exportEverything({ database, tenant }: Users): Promise<string[]> {
  const range = { fromUs: 0n, toUs: BigInt(Date.now() + 60_000) * 1_000n }
  const found: string[] = []
  for await (const { text } of eventLines(database, tenant.accountId, range))
    for (const [, id] of text.matchAll(/"accountId":"(\d+)"/g)) found.push(`account ${id}`)
  return found
}

/** What exports of people contain. */
async function exportPeople({ database, tenant }: Users): Promise<string[]> {
  const found: string[] = []
  for (const userId of ['U1', 'U2', 'U9']) {
    const account = { id: tenant.accountId, organizationId: tenant.organizationId }
    const person = await findPerson(database, account, userId)
    if (person === null) continue
    found.push(`"id":"${person.memberId}"`)
    for await (const _ of personJson(database, person));
  }
  return found
}

const accountsOf = ({ events }: EventPage) => events.map(({ accountId }) => `account ${accountId}`)

/** The accounts of all events that an operator of the tenant's organization sees, by each filter, and the endpoints of one of them. */
async function listEverything({ database, tenant }: Users): Promise<string[]> {
  const organizationIds = [tenant.organizationId]
  const key = '01ARZ3NDEKTSV4RRFFQ69G5FAV'
  const first = { before: null, limit: 50 }
  const found: string[] = []
  for (const filter of [{}, { kind: 'follow' }] as EventFilter[])
    found.push(...accountsOf(await listAllEvents(database, organizationIds, filter, first)))
  // Those without an index that begins with the account.
  for (const filter of [
    { status: 'failed' },
    { status: 'set-aside' },
    { user: 'U1' },
    { key },
  ] as EventFilter[]) {
    found.push(...accountsOf(await listAllEvents(database, organizationIds, filter, first)))
    await listAllEvents(database, ALL_ORGANIZATIONS, filter, first)
  }
  const { events } = await listAllEvents(database, organizationIds, {}, { before: null, limit: 1 })
  for (const { accountId, id } of events) await listEventDeliveries(database, accountId, id)
  return found
}

/** What an operator of the tenant's organization finds in all accounts: the ids of members. */
async function searchEverywhere({ database, tenant }: Users): Promise<string[]> {
  const organizationIds = [tenant.organizationId]
  const found: string[] = []
  for (const text of ['U2', 'E2', 'Ann']) {
    const people = await searchPeople({ reads: database, text, organizationIds })
    found.push(
      ...people.found.flatMap(({ memberships }) => memberships.map(({ memberId }) => `${memberId},`)),
    )
  }
  const memberships = await database.query<Membership>(selectMemberships, [organizationIds, 'U2', 10])
  found.push(...memberships.map(({ memberId }) => `${memberId},`))
  return found
}

/** What commands do in sessions without time limits. In the end the account is gone. */
export async function useUpAccount({
  database,
  tenant: { accountId },
}: Pick<Users, 'database' | 'tenant'>): Promise<void> {
  await findAccountContents(database, null, accountId)
  await removeAccount(database, accountId)
}
