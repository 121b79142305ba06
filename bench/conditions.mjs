/** What conditions of endpoints cost intake: processor time per delivery for 20 endpoints with a condition, and for 20 without. */
import { addAccount, addOrganization } from '../dist/src/accounts/provisioning.js'
import { openDatabase } from './database.mjs'
import { BOT_USER_ID, CHANNEL_SECRET, requestsFor } from './deliveries.mjs'
import { median, send } from './load.mjs'
import { postmasterOf, processorUs, readPostgres } from './processes.mjs'
import { startService, urlOf } from './targets.mjs'

const CONNECTIONS = 64
const ENDPOINTS = 20

/** The dearest is the one that everybody matches, because its deliveries are stored, too. */
const CONDITIONS = {
  none: null,
  'everybody matches': { eventCountMin: 1, tagsNone: ['staff'] },
  'nobody matches': { tagsAny: ['staff'] },
}

export async function run({ smoke }) {
  const rounds = smoke ? 1 : 5
  const size = smoke ? 100 : 2_000
  const { server, database, close } = await openDatabase()
  let target = null
  try {
    const organizationId = await addOrganization(database, 'bench')
    const accounts = {}
    for (const [name, condition] of Object.entries(CONDITIONS)) {
      const columns = { name, channel_secret: CHANNEL_SECRET, bot_user_id: BOT_USER_ID }
      const { id } = await addAccount(database, organizationId, columns)
      // Paused, so that only what intake stores is measured.
      await database.query(
        `insert into endpoint (channel_oa_id, url, condition, status, allow_private_network)
         select $1, 'http://127.0.0.1:9/' || i, $2, 'paused', true from generate_series(1, $3::int) i`,
        [id, condition && JSON.stringify(condition), ENDPOINTS],
      )
      accounts[name] = id
    }
    target = await startService({ DATABASE_URL: urlOf(server) })
    const postmaster = await postmasterOf(database)
    const measure = async (id, count) => {
      const read = () => processorUs(target.child.pid) + readPostgres(postmaster).cpuSeconds * 1e6
      const before = read()
      const requests = requestsFor(id, count)
      const { failures } = await send({ port: target.port, connections: CONNECTIONS, requests })
      if (failures > 0) throw new Error('some deliveries failed')
      return (read() - before) / count
    }
    for (const id of Object.values(accounts)) await measure(id, smoke ? 64 : 2_000)
    const results = Object.fromEntries(Object.keys(CONDITIONS).map((name) => [name, []]))
    for (let round = 0; round < rounds; round += 1) {
      for (const [name, id] of Object.entries(accounts)) results[name].push(await measure(id, size))
      await database.query('truncate endpoint_delivery')
    }
    console.log(
      `${ENDPOINTS} paused endpoints, ${CONNECTIONS} connections, 1 event a delivery, ${rounds} rounds of ${size}`,
    )
    for (const [name, each] of Object.entries(results)) {
      const ratio = median(each.map((us, round) => us / results.none[round]))
      console.log(
        `  condition: ${name.padEnd(18)} ${Math.round(median(each))} µs of service and PostgreSQL, ${ratio.toFixed(2)} of none`,
      )
    }
  } finally {
    target?.child.kill('SIGKILL')
    await close()
  }
}
