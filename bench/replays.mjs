/** What a replay of a million events costs live deliveries to the same endpoint and to another one. */
import { readFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { connect } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { addAccount, addOrganization } from '../dist/src/accounts/provisioning.js'
import { countReplay, planReplay, RATE_DEFAULT, RATE_MAX } from '../dist/src/endpoints/replays.js'
import { cancelJob, findJob } from '../dist/src/jobs/job.js'
import { startReplay } from '../dist/src/jobs/send-again.js'
import { commandActor } from '../dist/src/operators/actor.js'
import { openDatabase } from './database.mjs'
import { BOT_USER_ID, CHANNEL_SECRET, requestsFor } from './deliveries.mjs'
import { median } from './load.mjs'
import { startService, urlOf } from './targets.mjs'

/** Live deliveries per second, to each of the two endpoints. */
const LIVE_PER_SECOND = 50

export async function runReplay({ smoke }) {
  const { events, rounds, seconds } = smoke
    ? { events: 2_000, rounds: 1, seconds: 1 }
    : { events: 1_000_000, rounds: 12, seconds: 3 }
  const { server, database, close } = await openDatabase()
  const receiver = await startReceiver()
  let service = null
  try {
    const organizationId = await addOrganization(database, 'bench')
    const columns = { name: 'bench', channel_secret: CHANNEL_SECRET, bot_user_id: BOT_USER_ID }
    const [same, other] = [
      await addAccount(database, organizationId, columns),
      await addAccount(database, organizationId, columns),
    ]
    const [endpointId] = [
      await addEndpoint(database, same, receiver),
      await addEndpoint(database, other, receiver),
    ]
    await storeEvents(database, same, events)
    service = await startService({ DATABASE_URL: urlOf(server) })
    const live = (count) =>
      sendLive({ port: service.port, receiver, accounts: [same, other], seconds: count })
    await live(smoke ? 1 : 5)

    const startedAt = performance.now()
    const plan = await planReplay(database, null, endpointId, {
      from: '2020-01-01',
      to: '2100-01-01',
      rate: RATE_MAX,
    })
    const counted = await countReplay(database, plan.endpoint, plan.request)
    const countMs = performance.now() - startedAt
    const peakBefore = peakMegabytes(service.child.pid)
    const results = { 0: [] }
    const replayed = {}
    let from = plan.request.from
    for (let round = 0; round < rounds; round += 1) {
      results[0].push(await live(seconds))
      for (const rate of [RATE_DEFAULT, RATE_MAX]) {
        const job = await database.transaction((transaction) =>
          startReplay(transaction, commandActor(), plan.endpoint, { ...plan.request, from, rate }, null),
        )
        const doneOf = async () => Number((await findJob(database, commandActor(), job)).done)
        // An idle service takes a job within 3 s.
        await until(async () => (await doneOf()) > 0)
        const before = await doneOf()
        const beganAt = performance.now()
        results[rate] = [...(results[rate] ?? []), await live(seconds)]
        const perSecond = (((await doneOf()) - before) * 1000) / (performance.now() - beganAt)
        replayed[rate] = [...(replayed[rate] ?? []), perSecond]
        const [{ position }] = await database.query('select position from job where id = $1', [job])
        from = position?.after.receivedAt ?? from
        await database.transaction((transaction) => cancelJob(transaction, commandActor(), job))
      }
    }
    console.log(
      `\nreplay of ${events} events beside ${2 * LIVE_PER_SECOND} live deliveries/s to two endpoints`,
    )
    console.log(`  counted ${counted.events}${counted.isMore ? '+' : ''} in ${Math.round(countMs)} ms`)
    for (const rate of [RATE_DEFAULT, RATE_MAX]) {
      console.log(`  --rate ${rate}: replayed ${Math.round(median(replayed[rate]))} events/s`)
      for (const [name, which] of [
        ['same endpoint', 0],
        ['other endpoint', 1],
      ]) {
        const of = (kind, part) =>
          percentile(
            results[kind].flatMap((byEndpoint) => byEndpoint[which]),
            part,
          )
        const text = (part) =>
          `${of(0, part).toFixed(1)} ms alone, ${of(rate, part).toFixed(1)} ms beside: ${(of(rate, part) / of(0, part)).toFixed(2)}`
        console.log(`    ${name.padEnd(15)} p50 ${text(0.5)}   p99 ${text(0.99)}`)
      }
    }
    console.log(
      `  peak memory of the service: ${peakBefore} MB before, ${peakMegabytes(service.child.pid)} MB after`,
    )
  } finally {
    service?.child.kill('SIGKILL')
    receiver.close()
    await close()
  }
}

async function addEndpoint(database, { id }, { url }) {
  const [added] = await database.query(
    'insert into endpoint (channel_oa_id, url, allow_private_network) values ($1, $2, true) returning id',
    [id, url],
  )
  return added.id
}

/** As many as possible in one hour, like those of a large account. */
async function storeEvents(database, { id }, count) {
  await database.session(async (session) => {
    await session.query(
      `insert into event (channel_oa_id, source, kind, key, occurred_at, received_at, user_id, message_id, payload)
       select $1, 'line', 'message', gen_random_uuid(), at, at, user_id, 'm' || i,
              format('{"type":"message","message":{"type":"text","id":"m%s","quoteToken":"%s","text":"Good morning, is the shop open today?"},"webhookEventId":"%s","deliveryContext":{"isRedelivery":false},"timestamp":1760000000000,"source":{"type":"user","userId":"%s"},"replyToken":"%s","mode":"active"}',
                     i, md5(i::text), md5(i::text), user_id, md5(i::text))
         from generate_series(1, $2::int) i,
              lateral (select now() - interval '1 hour' + i * interval '1 hour' / $2 as at, 'U' || md5((i % 10000)::text) as user_id) e`,
      [id, count],
    )
    await session.query('vacuum analyze event')
  })
}

/** Notes when the marks of live deliveries arrive. Batches of a replay are not parsed, because that would be measured, too. */
function startReceiver() {
  const arrivals = new Map()
  const receiver = createServer((request, response) => {
    const chunks = []
    request.on('data', (chunk) => chunks.push(chunk))
    request.on('end', () => {
      response.end()
      const body = Buffer.concat(chunks)
      if (body.length > 2_000) return
      arrivals.set(/"webhookEventId":"(\w+)"/.exec(body)?.[1], performance.now())
    })
  }).listen(0, '127.0.0.1')
  return new Promise((resolve) =>
    receiver.once('listening', () =>
      resolve({
        url: `http://127.0.0.1:${receiver.address().port}/`,
        arrivals,
        close: () => receiver.close() && receiver.closeAllConnections(),
      }),
    ),
  )
}

/** Sends deliveries at a fixed rate. Resolves with the milliseconds until each arrived, by account. */
async function sendLive({ port, receiver: { arrivals }, accounts, seconds }) {
  const count = seconds * LIVE_PER_SECOND
  arrivals.clear()
  const sent = []
  const sockets = accounts.map(() =>
    connect({ port, host: '127.0.0.1', noDelay: true }).on('data', () => undefined),
  )
  const requests = accounts.map(({ id }) => requestsFor(id, count))
  const startedAt = performance.now()
  for (let no = 0; no < count; no += 1) {
    for (const [which, socket] of sockets.entries()) {
      const request = requests[which][no]
      sent.push({ which, id: /"webhookEventId":"(\w+)"/.exec(request)[1], atMs: performance.now() })
      socket.write(request)
    }
    await sleep(Math.max(0, startedAt + ((no + 1) * 1000) / LIVE_PER_SECOND - performance.now()))
  }
  await until(() => sent.every(({ id }) => arrivals.has(id)))
  for (const socket of sockets) socket.destroy()
  return accounts.map((_, account) =>
    sent.filter(({ which }) => which === account).map(({ id, atMs }) => arrivals.get(id) - atMs),
  )
}

const percentile = (values, part) => values.toSorted((a, b) => a - b)[Math.floor(values.length * part)]

const peakMegabytes = (pid) =>
  Math.round(Number(/VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]) / 1024)

async function until(isDone) {
  while (!(await isDone())) await sleep(10)
}
