/** A replay at full speed beside live deliveries: their latency, and the memory of the service. */
import { expect, it } from 'vitest'
import { textMessage } from '../../tools/simulator/events.ts'
import { startReceiver } from '../support/endpoints.ts'
import { load } from '../support/load.ts'
import { MEASURED } from '../support/measured.ts'
import { eventsOf, startReplaying, textsOf } from '../support/replays.ts'

const STORED = 50_000
const LIVE = 150

const at = (sorted: number[], part: number) => sorted[Math.floor(sorted.length * part)] ?? 0

it(
  'delays live deliveries to its endpoint and to others little, and keeps one request in memory',
  MEASURED,
  async () => {
    const { database, service, tenant, addEndpoint, replay, job, endOf } = await startReplaying()
    await load(
      database,
      `insert into event (channel_oa_id, source, kind, key, occurred_at, received_at, payload)
     select $1, 'line', 'message', gen_random_uuid(), now(), now() - interval '1 minute' + i * interval '1 millisecond', $3
       from generate_series(1, $2::int) i`,
      [tenant.accountId, STORED, JSON.stringify(textMessage('Ustored', 'stored before '.repeat(20)))],
    )
    const [same, other] = [await startReceiver(), await startReceiver()]
    const id = await addEndpoint(same.url)
    await addEndpoint(other.url)
    /** Milliseconds until both endpoints have each of some deliveries. */
    const measure = async (name: string) => {
      const latenciesMs: number[] = []
      for (let no = 0; no < LIVE; no += 1) {
        const text = `${name} ${no}.`
        const startedAt = performance.now()
        await service.deliver(tenant, [textMessage('Ulive', text)])
        const isIn = ({ received }: typeof same) =>
          received.some(({ body }) => body.length < 2_000 && body.includes(text))
        await expect.poll(() => isIn(same) && isIn(other), { interval: 1, timeout: 10_000 }).toBe(true)
        latenciesMs.push(performance.now() - startedAt)
        same.received = same.received.filter(({ body }) => body.length < 2_000)
      }
      return latenciesMs.sort((a, b) => a - b)
    }
    await measure('warm')
    const alone = await measure('alone')
    const started = await replay(id)
    await expect.poll(async () => (await job(started)).done, { timeout: 10_000 }).toBeGreaterThan(0n)
    const heapBefore = process.memoryUsage().rss
    const beganAt = performance.now()
    const before = (await job(started)).done
    const beside = await measure('beside')
    const perSecond = (Number((await job(started)).done - before) * 1000) / (performance.now() - beganAt)
    const rows = await database.query('select from endpoint_delivery where job_id is not null')
    const grownMb = (process.memoryUsage().rss - heapBefore) / 2 ** 20
    const figures = [0.5, 0.99].map(
      (part) => `${at(alone, part).toFixed(0)} ms, beside ${at(beside, part).toFixed(0)} ms`,
    )
    console.log(
      `live p50 ${figures[0]}; p99 ${figures[1]}; replayed ${Math.round(perSecond)}/s; ${Math.round(grownMb)} MB more`,
    )
    expect(rows.length).toBeLessThanOrEqual(1)
    expect(perSecond).toBeGreaterThan(0)
    expect(grownMb).toBeLessThan(150)
    expect(at(beside, 0.99)).toBeLessThan(3 * at(alone, 0.99) + 100)
    expect(textsOf(other).every((text) => !text.startsWith('stored'))).toBe(true)
    expect(eventsOf(other)).toHaveLength(3 * LIVE)
    await database.query('delete from endpoint where id = $1', [id])
    await endOf(started)
  },
)
