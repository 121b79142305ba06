/** `oa-audience demo --incidents`: prints the messages that a chat receives about incidents. */

import { removeOrganization } from '../../src/accounts/organizations.ts'
import { styled } from '../../src/cli/io.ts'
import { LineApi } from '../../src/line-api/client.ts'
import { deliveryPaths } from '../../src/line-api/line-signature.ts'
import type { RunningService } from '../../src/main.ts'
import { CHANNELS } from '../../src/operations/channels.ts'
import { perform, type Services } from '../../src/operations/operation.ts'
import { ALL_ORGANIZATIONS, commandActor } from '../../src/operators/actor.ts'
import type { Database } from '../../src/postgres/database.ts'
import { removeAccount } from '../remove-account.ts'
import type { SimulatedPlatform } from '../simulator/platform.ts'
import { addShops, playIncidents, untilSent } from './incidents.ts'

export async function showIncidents(
  { database: ready }: RunningService,
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
  } finally {
    for (const id of accountIds) await removeAccount(database, id)
    await database.transaction((transaction) =>
      removeOrganization(transaction, ALL_ORGANIZATIONS, organizationId),
    )
  }
}

function addChat(database: Database, organizationId: bigint, target: string) {
  const services = { ownUrls: () => [], canEmail: false } as Partial<Services> as Services
  const settings = { organization: String(organizationId), name: 'Chat', format: 'slack', target }
  const input = CHANNELS.add.check({ ...settings, allowPrivateNetwork: true })
  return perform(CHANNELS.add, { database, actor: commandActor(), services, input })
}

function show(incident: string, messages: string[], asJson: boolean): void {
  if (asJson) {
    console.log(JSON.stringify({ incident, messages }))
    return
  }
  console.log(`\n${styled(['bold', 'cyan'], incident)}`)
  for (const message of messages) console.log(message.replace(/^/gm, '  │ '))
}
