/** What outgoing webhooks cost intake, and how fast they leave. */
import { createServer } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import { addAccount, addOrganization } from '../dist/src/accounts/provisioning.js'
import { openDatabase } from './database.mjs'
import { BOT_USER_ID, CHANNEL_SECRET, requestsFor } from './deliveries.mjs'
import { median, send } from './load.mjs'
import { runMany } from './many-endpoints.mjs'
import { runReplay } from './replays.mjs'
import { startService, urlOf } from './targets.mjs'

const CONNECTIONS = 64

export async function run({ smoke }) {
  const rounds = smoke ? 1 : 5
  const size = smoke ? 300 : 8_000
  const { server, database, close } = await openDatabase()
  let received = 0
  // In a process of its own it would only add a third process to two cores.
  const receiver = createServer((request, response) => {
    request.resume().on('end', () => {
      received += 1
      response.end('ok')
    })
  }).listen(0, '127.0.0.1')
  let target = null
  try {
    const organizationId = await addOrganization(database, 'bench')
    const columns = { name: 'bench', channel_secret: CHANNEL_SECRET, bot_user_id: BOT_USER_ID }
    const [plain, forwarding] = [
      await addAccount(database, organizationId, columns),
      await addAccount(database, organizationId, columns),
    ]
    const url = `http://127.0.0.1:${receiver.address().port}/`
    await database.query(
      'insert into endpoint (channel_oa_id, url, replies, allow_private_network) values ($1, $2, true, true)',
      [forwarding.id, url],
    )
    target = await startService({ DATABASE_URL: urlOf(server) })
    const { port } = target
    const load = (account, count) =>
      send({ port, connections: CONNECTIONS, requests: requestsFor(account.id, count) })
    for (const account of [plain, forwarding]) await load(account, smoke ? 64 : 4_000)

    const results = { plain: [], paused: [], forwarding: [] }
    const forwardedPerSecond = []
    const setStatus = (status) => database.query('update endpoint set status = $1', [status])
    for (let round = 0; round < rounds; round += 1) {
      results.plain.push(await load(plain, size))
      await setStatus('paused')
      results.paused.push(await load(forwarding, size))
      await database.query('delete from endpoint_delivery')
      await setStatus('active')
      const before = received
      const startedAt = performance.now()
      results.forwarding.push(await load(forwarding, size))
      await until(() => received >= before + size)
      forwardedPerSecond.push(((received - before) * 1000) / (performance.now() - startedAt))
    }
    const rate = (name) => median(results[name].map(({ perSecond }) => perSecond))
    console.log(`${CONNECTIONS} connections, 1 event a delivery, ${rounds} rounds of ${size}`)
    console.log(`  without endpoint   ${Math.round(rate('plain'))}/s`)
    console.log(
      `  with one endpoint  ${Math.round(rate('forwarding'))}/s accepted, ${Math.round(median(forwardedPerSecond))}/s forwarded`,
    )
    console.log(`  stored for a paused endpoint / without   ${(rate('paused') / rate('plain')).toFixed(2)}`)
    console.log(`  with / without     ${(rate('forwarding') / rate('plain')).toFixed(2)}`)

    await setStatus('paused')
    const backlog = smoke ? 300 : 20_000
    const sent = received + backlog
    await load(forwarding, backlog)
    await setStatus('active')
    const startedAt = performance.now()
    await until(() => received >= sent)
    console.log(
      `  backlog of ${backlog}: ${Math.round((backlog * 1000) / (performance.now() - startedAt))}/s`,
    )
  } finally {
    target?.child.kill('SIGKILL')
    receiver.close()
    await close()
  }
  await runMany({ smoke })
  await runReplay({ smoke })
}

/** Not by asking the database, which would be measured, too. */
async function until(isDone) {
  while (!isDone()) await sleep(5)
}
