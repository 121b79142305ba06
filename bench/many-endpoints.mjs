/** Many endpoints, most of which fail or belong to one account: healthy endpoints, LINE's requests, feeds and memory beside them. */
import { createServer as createHttpServer } from 'node:http'
import { createServer } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { addAccount, addOrganization } from '../dist/src/accounts/provisioning.js'
import { openDatabase } from './database.mjs'
import { BOT_USER_ID, CHANNEL_SECRET, requestsFor } from './deliveries.mjs'
import { median, send } from './load.mjs'
import { readProcess } from './processes.mjs'
import { startService, urlOf } from './targets.mjs'

/** Nothing listens there. */
const REFUSING_URL = 'http://127.0.0.1:9/'

export async function runMany({ smoke }) {
  await beside(
    'failing endpoints',
    failing,
    smoke ? { accounts: 2, due: 200 } : { accounts: 38, due: 200_000 },
  )
  await beside('one account', crowded, smoke ? { endpoints: 30 } : { endpoints: 1_000 })
  await beside('1 MiB to silent endpoints', silent, smoke ? { endpoints: 5 } : { endpoints: 100 })
  await beside('feeds', feeds, smoke ? { accounts: 2, members: 10 } : { accounts: 200, members: 600 })
}

/** 50 endpoints per account, of which half refuse and half never answer. */
async function failing(bench, { accounts, due }) {
  const { database, addTenant, addEndpoints, measureLine, deliver, receiver } = bench
  const [healthy, other] = [await addTenant(), await addTenant()]
  await addEndpoints(healthy, receiver.url, 1, 'active')
  for (let no = 0; no < accounts; no += 1) {
    const failingAccount = await addTenant()
    await addEndpoints(failingAccount, no % 2 === 0 ? REFUSING_URL : bench.silentUrl, 50, 'paused')
    await deliver(failingAccount, 1)
  }
  await fannedOut(database)
  await database.query(
    `insert into endpoint_delivery (channel_oa_id, endpoint_id, event_keys, created_at)
     select channel_oa_id, endpoint_id, event_keys, created_at from endpoint_delivery, generate_series(2, $1::int)`,
    [Math.ceil(due / accounts / 50)],
  )
  await measureForwarding(bench, healthy, 5)
  const idle = await measureLine(other)
  await database.query(`update endpoint set status = 'active'`)
  const [forwarding, first] = await Promise.all([measureForwarding(bench, healthy, 200), measureLine(other)])
  const later = await measureLine(other)
  console.log(
    `  ${accounts * 50} endpoints with ${due} due deliveries: forwarded to a healthy one ${show(forwarding)}`,
  )
  console.log(`  LINE of others: idle ${show(idle)}; first seconds ${show(first)}; later ${show(later)}`)
}

/** A delivery each second to an account whose endpoints all accept. */
async function crowded({ addTenant, addEndpoints, measureLine, deliver, receiver }, { endpoints }) {
  const [large, other] = [await addTenant(), await addTenant()]
  await addEndpoints(large, receiver.url, endpoints, 'active')
  const idle = await measureLine(other)
  let sent = 0
  const startedAt = performance.now()
  const timer = setInterval(() => {
    sent += endpoints
    void deliver(large, 1)
  }, 1_000)
  const busy = await measureLine(other).finally(() => clearInterval(timer))
  await until(() => receiver.count >= sent)
  const perSecond = (sent * 1000) / (performance.now() - startedAt)
  console.log(`  ${endpoints} endpoints, one delivery a second: ${Math.round(perSecond)} requests/s`)
  console.log(`  LINE of others: idle ${show(idle)}; beside it ${show(busy)}`)
}

/** 20 deliveries of 1 MiB for each endpoint. */
async function silent(bench, { endpoints }) {
  const { database, addTenant, addEndpoints, deliver, receiver, service } = bench
  const [large, healthy] = [await addTenant(), await addTenant()]
  await addEndpoints(large, bench.silentUrl, endpoints, 'paused')
  await addEndpoints(healthy, receiver.url, 1, 'active')
  await deliver(large, 20)
  await fannedOut(database)
  await database.query(`update event set payload = replace(payload, 'Good', repeat('x', 1000000))`)
  await measureForwarding(bench, healthy, 5)
  const idleMiB = readProcess(service.child.pid).rssMiB
  await database.query(`update endpoint set status = 'active'`)
  let greatestMiB = 0
  const timer = setInterval(() => {
    greatestMiB = Math.max(greatestMiB, readProcess(service.child.pid).rssMiB)
  }, 50)
  const forwarding = await measureForwarding(bench, healthy, 200).finally(() => clearInterval(timer))
  console.log(`  memory ${Math.round(idleMiB)} MiB idle, at most ${Math.round(greatestMiB)} MiB`)
  console.log(`  forwarded to a healthy endpoint ${show(forwarding)}`)
}

/** Three `members` endpoints per account, whose members are loaded at the same moment. */
async function feeds({ database, addTenant, addEndpoints, receiver }, { accounts, members }) {
  for (let no = 0; no < accounts; no += 1) {
    await addEndpoints(await addTenant(), receiver.url, 3, 'active', 'members')
  }
  const wanted = accounts * members * 3
  await database.query(
    `insert into audience_member (channel_oa_id, organization_id, user_id)
     select a.id, a.organization_id, 'U' || md5(i::text) from official_account a, generate_series(1, $1::int) i`,
    [members],
  )
  const startedAt = performance.now()
  const perSecond = (count) => Math.round((count * 1000) / (performance.now() - startedAt))
  await until(async () => {
    const [row] = await database.query(
      `select count(*)::int as behind from endpoint p
        where (change_position, change_member) < (select change, id from audience_member
                where channel_oa_id = p.channel_oa_id order by change desc, id desc limit 1)`,
    )
    return row.behind === 0
  }, 1_000)
  console.log(`  ${wanted} changes for ${accounts * 3} endpoints: stored for them at ${perSecond(wanted)}/s`)
  await until(() => receiver.count >= wanted)
  console.log(`  received at ${perSecond(wanted)}/s`)
}

/** Runs a case on a database, a service and a receiver of its own. */
async function beside(name, measure, sizes) {
  const { server, database, close } = await openDatabase()
  const receiver = { count: 0, url: '' }
  const counting = createHttpServer((request, response) => {
    receiver.count += 1
    request.resume().on('end', () => response.end())
  }).listen(0, '127.0.0.1')
  const saysNothing = createServer((socket) => socket.on('error', () => undefined).pause()).listen(
    0,
    '127.0.0.1',
  )
  await until(() => counting.listening && saysNothing.listening)
  receiver.url = `http://127.0.0.1:${counting.address().port}/`
  const service = await startService({ DATABASE_URL: urlOf(server) })
  const { port } = service
  try {
    console.log(name)
    const organizationId = await addOrganization(database, 'bench')
    await measure(
      {
        database,
        service,
        receiver,
        silentUrl: `http://127.0.0.1:${saysNothing.address().port}/`,
        addTenant: () =>
          addAccount(database, organizationId, {
            name: 'bench',
            channel_secret: CHANNEL_SECRET,
            bot_user_id: BOT_USER_ID,
          }),
        addEndpoints: ({ id }, url, count, status, format = 'line') =>
          database.query(
            `insert into endpoint (channel_oa_id, url, status, format, allow_private_network)
             select $1, $2, $3, $4, true from generate_series(1, $5::int)`,
            [id, url, status, format, count],
          ),
        deliver: ({ id }, count) => send({ port, connections: 1, requests: requestsFor(id, count) }),
        measureLine: (account) => measureLine(port, account),
      },
      sizes,
    )
  } finally {
    service.child.kill('SIGKILL')
    counting.close()
    counting.closeAllConnections()
    saysNothing.close()
    await close()
  }
}

/** A delivery every 20 ms for some seconds, each on a connection of its own. */
async function measureLine(port, { id }) {
  const sent = []
  for (const request of requestsFor(id, 250)) {
    sent.push(send({ port, connections: 1, requests: [request] }))
    await sleep(20)
  }
  return (await Promise.all(sent)).map(({ p50Ms }) => p50Ms)
}

/** From LINE's request to the endpoint's. The account is the only one whose endpoint is the receiver. */
async function measureForwarding({ deliver, receiver }, account, count) {
  const latenciesMs = []
  for (let no = 0; no < count; no += 1) {
    const before = receiver.count
    const startedAt = performance.now()
    await deliver(account, 1)
    await until(() => receiver.count > before, 1)
    latenciesMs.push(performance.now() - startedAt)
    await sleep(20)
  }
  return latenciesMs
}

function show(latenciesMs) {
  const p99 = latenciesMs.toSorted((a, b) => a - b)[Math.floor(latenciesMs.length * 0.99)]
  return `median ${median(latenciesMs).toFixed(1)} ms, p99 ${p99.toFixed(0)} ms`
}

const fannedOut = (database) =>
  until(async () => (await database.query('select from endpoint_fan_out limit 1')).length === 0)

async function until(isDone, everyMs = 5) {
  while (!(await isDone())) await sleep(everyMs)
}
