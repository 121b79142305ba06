/** `oa-audience demo --incidents`: prints the messages that a chat receives about incidents, and a changed channel secret that heals. */
import { randomBytes } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { updateAccount } from '../../src/accounts/manage-accounts.ts'
import { removeOrganization } from '../../src/accounts/organizations.ts'
import { styled } from '../../src/cli/io.ts'
import { performHere } from '../../src/cli/operation-commands.ts'
import { Secret } from '../../src/config/secret.ts'
import { LineApi } from '../../src/line-api/client.ts'
import { deliveryPaths, signLine } from '../../src/line-api/line-signature.ts'
import type { RunningService } from '../../src/main.ts'
import { CHANNELS } from '../../src/operations/channels.ts'
import { ALL_ORGANIZATIONS, commandActor } from '../../src/operators/actor.ts'
import type { Database } from '../../src/postgres/database.ts'
import { statement } from '../../src/postgres/statement.ts'
import { removeAccount } from '../remove-account.ts'
import { lineBody, lineEvent, randomUserId } from '../simulator/events.ts'
import type { SimulatedPlatform } from '../simulator/platform.ts'
import type { SimulatedAccount } from '../simulator/state.ts'
import { addShops, playIncidents, untilSent } from './incidents.ts'

export async function showIncidents(
  { database: ready, url }: RunningService,
  platform: SimulatedPlatform,
  asJson: boolean,
): Promise<void> {
  const database = ready as Database
  const { organizationId, accountIds, shops } = await addShops(database, platform, 'Demo incidents')
  try {
    await addChat(database, organizationId, `${platform.url}/receive/chat`)
    const verifier = {
      lineApi: new LineApi(platform.url),
      publicUrl: 'https://audience.example.com',
      webhookPaths: deliveryPaths,
      now: Date.now,
    }
    if (!asJson)
      console.log(
        `${shops.length} accounts on the simulated platform. Stored times are moved back, so that nobody waits.`,
      )
    let shown = 0
    const settle = async (incident: string) => {
      await untilSent(database, organizationId)
      const messages = platform.receipts.slice(shown).map(({ body }) => String(body.text))
      shown = platform.receipts.length
      show(incident, messages, asJson)
    }
    await playIncidents({ database, platform, verifier, organizationId, settle }, shops)
    const [id, shop] = [accountIds[0], shops[0]]
    if (id === undefined || shop === undefined) return
    const messages = await changeSecret(database, url, id, shop.account)
    show('The channel secret of an account changes', messages, asJson)
  } finally {
    for (const id of accountIds) await removeAccount(database, id)
    await database.transaction((transaction) =>
      removeOrganization(transaction, ALL_ORGANIZATIONS, organizationId),
    )
  }
}

const DELIVERIES = 20
const WAIT_MAX_MS = 30_000

/** $1 account id bigint */
const countPeople = statement('incidents-count-people')`
    select count(*)::int as count from audience_member where channel_oa_id = $1`

/** LINE invalidates the old secret at once, and a person stores the new one later. Returns what happened. */
async function changeSecret(
  database: Database,
  url: string,
  id: bigint,
  account: SimulatedAccount,
): Promise<string[]> {
  account.channelSecret = randomBytes(16).toString('hex')
  const statuses = new Set<number>()
  for (let sent = 0; sent < DELIVERIES; sent += 1) {
    const body = lineBody(account.botUserId, [lineEvent('follow', randomUserId())])
    const signature = signLine(body, new Secret(account.channelSecret))
    const headers = { 'content-type': 'application/json', 'x-line-signature': signature }
    statuses.add((await fetch(`${url}/api/line/${id}`, { method: 'POST', headers, body })).status)
  }
  const changed = { channel_secret: account.channelSecret }
  await updateAccount({ database, lineApi: null }, commandActor(), id, changed)
  const startedAtMs = performance.now()
  let people = 0
  while (people < DELIVERIES && performance.now() - startedAtMs < WAIT_MAX_MS) {
    await sleep(50)
    people = (await database.query<{ count: number }>(countPeople, [id]))[0]?.count ?? 0
  }
  const seconds = Math.ceil((performance.now() - startedAtMs) / 1_000)
  return [
    `LINE signs ${DELIVERIES} deliveries with the new secret. They are answered ${[...statuses].join(', ')}, and kept.`,
    `An operator stores the new secret. ${seconds} s later, ${people} of ${DELIVERIES} people are members.`,
  ]
}

function addChat(database: Database, organizationId: bigint, target: string) {
  const settings = { organization: String(organizationId), name: 'Chat', format: 'slack', target }
  const input = CHANNELS.add.check({ ...settings, allowPrivateNetwork: true })
  return performHere(database, CHANNELS.add, { input })
}

function show(incident: string, messages: string[], asJson: boolean): void {
  if (asJson) {
    console.log(JSON.stringify({ incident, messages }))
    return
  }
  console.log(`\n${styled(['bold', 'cyan'], incident)}`)
  for (const message of messages) console.log(message.replace(/^/gm, '  │ '))
}
