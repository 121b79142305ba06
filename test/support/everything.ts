/**
 * All that clients, senders and operators do with one tenant, as they do it: by requests and commands. What it imports of src are loops,
 * which only time starts, the ledger that a process opens, and a statement for which an erasure needs more than 20,000 events.
 */
import { finishErasures, storePending } from '../../src/accounts/erasure-lock.ts'
import { ErasureLedger } from '../../src/audience/erasure/erasure-ledger.ts'
import { ProfileFiller } from '../../src/audience/profiles.ts'
import { Sender } from '../../src/endpoints/sender.ts'
import { LineApi } from '../../src/line-api/client.ts'
import { refreshDueFigures } from '../../src/watch/account-figures.ts'
import { takeDueAccounts } from '../../src/watch/account-monitor.ts'
import { addPeople } from '../../tools/simulator/deliveries.ts'
import { lineEvent, textMessage } from '../../tools/simulator/events.ts'
import type { SimulatedPlatform } from '../../tools/simulator/platform.ts'
import type { TextDatabase } from '../../tools/text-database.ts'
import { runCommand } from './command.ts'
import { signedIn, signedInAs, startConsole, startSignedIn } from './console.ts'
import { type Objects, ROUTES } from './console-routes.ts'
import type { Tenant } from './database.ts'
import { finishJobs, uploadFile } from './jobs.ts'
import { operateLedger } from './ledger.ts'
import { insertRow, load } from './load.ts'
import { addObjects } from './objects.ts'
import { verifierOn } from './platform.ts'
import { eventually, temporaryDirectory, writeTemporaryFile } from './process.ts'
import { TODAY } from './replays.ts'
import { type Service, startApp } from './service.ts'

interface Users {
  service: Service
  database: TextDatabase
  /** writes rows as other programs do */
  direct: TextDatabase
  /** of commands */
  env: Record<string, string>
  platform: SimulatedPlatform
  /** with the credentials of the platform's account, and what addPeopleAndObjects adds */
  tenant: Tenant
  objects: Objects
  /** which routes of the console; by default all */
  routes?: RegExp
}

const LISTS = [
  ...[
    '',
    'userId=U1',
    'externalId=E1',
    'relationship=following',
    'tag=vip',
    'source=shop',
    'q=Ann',
    'q=A',
    'segment=Vips',
  ],
  'updatedSince=2020-01-01T00:00:00Z',
]
const FORMATS = ['application/json', 'application/x-ndjson', 'text/csv']

/**
 * Adds objects of each kind, and four members with the same ids and tags at each tenant, whose names begin with Ann.
 * @param mark appears in every name
 */
export async function addPeopleAndObjects(
  { service, direct }: Pick<Users, 'service' | 'direct'>,
  to: Tenant,
  mark: string,
): Promise<Objects> {
  const objects = await addObjects({ database: direct, service }, to, { mark })
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
                               display_name = 'Ann ' || $3, profile_due_at = null, source = 'shop',
                               source_at = followed_at, source_key = relationship_key
      where channel_oa_id = $1 and user_id = any ($2)`,
    [to.accountId, people, mark],
  )
  await load(direct, `insert into source_day values ($1, '2026-11-15', 'shop', 1, 0, 0, 0, 1, 1)`, [
    to.accountId,
  ])
  const condition = '{"tagsAny":["vip"],"eventCountMin":1}'
  await insertRow(direct, 'segment', { channel_oa_id: to.accountId, name: 'Vips', condition })
  return objects
}

/** Does everything. Returns the texts of all responses, commands and deliveries. */
export async function useEverything(users: Users): Promise<string[]> {
  const directory = temporaryDirectory()
  const ledger = new ErasureLedger(directory)
  const texts = [
    ...(await useApi(users)),
    ...(await useConsole(users, ledger)),
    ...(await useEndpoints(users)),
  ]
  await passTime(users)
  await ledger.recordAll(users.database)
  await useLedger(users, directory)
  return texts
}

/** What clients and senders send. */
async function useApi({ service, tenant }: Users): Promise<string[]> {
  const { headers } = tenant
  const answers = []
  for (const query of LISTS) {
    for (const accept of FORMATS)
      answers.push(await service.call('GET', `/api/audience?${query}`, { headers: { ...headers, accept } }))
  }
  const idOf = async (userId: string) => (await service.member(tenant, userId))?.id
  for (const condition of [{}, { 'if-match': '"99"' }])
    answers.push(await service.put(tenant, await idOf('U2'), { tags: ['changed'] }, condition))
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
  answers.push(await service.erase(tenant, await idOf('U4')))
  answers.push(await service.erase(tenant, 1, { 'if-match': '"1"' }))
  return answers.map(({ text }) => text)
}

/** Every route of the console, as operators of the tenant's organization and, for reads, of all organizations. Removals come last. */
async function useConsole(users: Users, ledger: ErasureLedger): Promise<string[]> {
  const { database, direct, platform, tenant, objects, routes: used = /./ } = users
  const { url } = await startConsole(database, { lineApiUrl: platform.url, erasureLedger: ledger })
  const organization_ids = [tenant.organizationId]
  const email = `${tenant.accountId}@example.com`
  const ofTenant = await signedInAs(
    database,
    url,
    await insertRow(direct, 'operator', { email, role: 'owner', organization_ids, signed_in_at: new Date() }),
  )
  const ofAll = await signedIn(url)
  addPeople(platform, 2)
  const [curable] = await load<{ id: bigint }>(
    direct,
    `update event set failure = 'for once' where channel_oa_id = $1 and user_id = 'U3' and kind = 'follow' returning id`,
    [tenant.accountId],
  )
  await ofAll.post(`/api/events/${curable?.id}/retry`)
  const texts: string[] = []
  const isRemoval = ([route]: [string, unknown]) => /remove|revoke|erase|cancel|secrets/.test(route)
  const routes = Object.entries(ROUTES).filter(([route]) => used.test(route))
  for (const [route, { request, further }] of [
    ...routes.filter((each) => !isRemoval(each)),
    ...routes.filter(isRemoval).toReversed(),
  ]) {
    const [method = ''] = route.split(' ')
    for (const { path, body } of [request(objects), ...further(objects)]) {
      const { status, text, json } = await ofTenant.call(method, `/api${path}`, body)
      texts.push(text)
      // The response has data of all tenants.
      if (method === 'GET') await ofAll.get(`/api${path}`)
      if (status !== 202) continue
      // It has results and secrets.
      if (route.endsWith('/add-endpoints')) objects.job = json.job.id
      await finishJobs(database, { platform: verifierOn(platform), erasureLedger: ledger })
    }
  }
  await uploadFile(ofTenant, tenant, 'ndjson', '{"userId":"U2"}\n{"userId":"U3","tags":["imported"]}\n')
  await finishJobs(database)
  return texts
}

/** What endpoints of both formats receive, live and by a replay or a resend. */
async function useEndpoints({ database, direct, platform, tenant }: Users): Promise<string[]> {
  platform.receiver.channelSecret = tenant.channelSecret
  const to = { channel_oa_id: tenant.accountId, url: `${platform.url}/receive`, allow_private_network: true }
  await load(direct, 'delete from endpoint')
  const [line, members] = [
    await insertRow(direct, 'endpoint', { ...to, format: 'line' }),
    await insertRow(direct, 'endpoint', { ...to, format: 'members' }),
  ]
  const { operator } = await startSignedIn(database)
  const sender = new Sender(database, () => false)
  sender.start()
  const sending = await startApp(database, { handOver: sender.handOver })
  await sending.deliver(tenant, [lineEvent('follow', 'U5')])
  const bodies = () => platform.receipts.map(({ body }) => JSON.stringify(body))
  await eventually(
    async () => bodies().join(),
    (all) => all.includes('"destination"') && all.includes('member.created'),
  )
  // What was received within 10 s cannot be replayed yet.
  await load(
    direct,
    `update event set received_at = received_at - interval '1 minute' where channel_oa_id = $1`,
    [tenant.accountId],
  )
  const count = bodies().length
  const jobs = [
    await operator.post(`/api/endpoints/${line}/replay`, { ...TODAY, rate: 1_000 }),
    await operator.post(`/api/endpoints/${members}/resend`, {
      filters: { relationship: 'following' },
      rate: 10,
    }),
  ]
  await eventually(
    async () => {
      await finishJobs(database, { onQueued: (endpointId) => sender.expect([endpointId]) })
      return bodies().length
    },
    (received) => received > count + 1,
  )
  for (const { json } of jobs) await operator.post(`/api/jobs/${json.job.id}/cancel`)
  await sender.stop()
  await load(direct, 'delete from endpoint')
  return bodies()
}

/** What happens without anybody's request: only time starts it. */
async function passTime({ service, database, direct, platform, tenant }: Users): Promise<void> {
  const { accountId, organizationId } = tenant
  await load(
    direct,
    `update audience_member set profile_due_at = now() where channel_oa_id = $1 and user_id in ('U1', 'U2')`,
    [accountId],
  )
  await new ProfileFiller(database, new LineApi(platform.url)).pass()
  await takeDueAccounts(database, 1)
  while ((await refreshDueFigures(database)) > 0);
  await load(
    direct,
    `insert into audience_member (id, channel_oa_id, organization_id, user_id)
     select last_value + 1, $1, $2, 'Uloaded' from audience_member_id_seq`,
    [accountId, organizationId],
  )
  await service.deliver(tenant, [lineEvent('follow', 'U6')])
  await database.query(storePending, [accountId, organizationId, 99n, 'U9', 0n])
  await finishErasures(database)
}

/** An erasure by a command, and a restored database, which lacks an erasure of its ledger. */
async function useLedger({ direct, env, tenant }: Users, directory: string): Promise<void> {
  await runCommand(['members', 'erase', '--account', String(tenant.accountId), '--user-id', 'U2'], {
    ...env,
    ERASURE_LEDGER: directory,
  })
  await load(direct, 'delete from erased_person where channel_oa_id = $1', [tenant.accountId])
  const { erasures } = operateLedger(env, directory)
  await erasures('reapply')
  await erasures('status')
}

/** Adds another account by a file, and removes the tenant's. */
export async function replaceAccount({
  env,
  tenant: { accountId, organizationId },
}: Pick<Users, 'env' | 'tenant'>): Promise<void> {
  const file = `organization,name,channel_id,channel_secret\n${organizationId},New,1650000002,${'0'.repeat(32)}\n`
  const commands = [
    ['apply', '--no-webhook', writeTemporaryFile('fleet.csv', file)],
    ['remove', String(accountId), '--yes'],
  ]
  for (const args of commands) await runCommand(['accounts', ...args], env)
}
