/** Name servers that do not answer: other endpoints receive, and nothing of the process waits for a thread. */
import { readFile } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import { expect, it } from 'vitest'
import { HostResolver } from '../../src/endpoints/resolver.ts'
import { lineEvent } from '../../tools/simulator/events.ts'
import { addTenant } from '../support/database.ts'
import { startReceiver, startSending } from '../support/endpoints.ts'
import { MEASURED } from '../support/measured.ts'
import { startNameServer } from '../support/name-server.ts'

/** 15 accounts × 20 endpoints */
const ACCOUNTS = 15
const ENDPOINTS_PER_ACCOUNT = 20

it(
  'delivers beside 300 endpoints whose name servers do not respond, and waits only once',
  MEASURED,
  async () => {
    const { server } = await startNameServer((name) =>
      name.startsWith('dead') ? 'silent' : { address: '127.0.0.1' },
    )
    const { database, service, tenant, addEndpoint } = await startSending(new HostResolver([server]))
    const other = await addTenant(database)
    const attackers = [tenant]
    while (attackers.length < ACCOUNTS) attackers.push(await addTenant(database))
    for (const { accountId } of attackers)
      for (let no = 0; no < ENDPOINTS_PER_ACCOUNT; no += 1)
        await addEndpoint(`http://dead${accountId}-${no}.example/`, { channel_oa_id: accountId })
    const receiver = await startReceiver()
    await addEndpoint(receiver.url.replace('127.0.0.1', 'alive.example'), { channel_oa_id: other.accountId })
    const waitsMs: number[] = []
    let longestThreadMs = 0
    for (let second = 0; second < 5; second += 1) {
      for (const attacker of attackers)
        await service.deliver(attacker, [lineEvent('follow', `Udead${second}`)])
      const sentAtMs = performance.now()
      await service.deliver(other, [lineEvent('follow', `Ualive${second}`)])
      await expect.poll(() => receiver.received).toHaveLength(second + 1)
      waitsMs.push(performance.now() - sentAtMs)
      const readAtMs = performance.now()
      await readFile('/etc/hosts')
      longestThreadMs = Math.max(longestThreadMs, performance.now() - readAtMs)
      await sleep(1_000)
    }
    console.log(
      `delivered after ${waitsMs.map(Math.round)} ms; a thread was free after ${Math.round(longestThreadMs)} ms at most`,
    )
    // 15 accounts take all queries until the first ones end, after 5 s. Names without a response are then cached.
    const [firstMs = 0, ...otherMs] = waitsMs
    expect(firstMs).toBeLessThan(8_000)
    expect(Math.max(...otherMs)).toBeLessThan(3_000)
    expect(longestThreadMs).toBeLessThan(1_000)
  },
)

it('resolves a name for others although the names in front of it in the queue of one account do not answer', async () => {
  const names = await startNameServer((name) =>
    name.startsWith('dead') ? 'silent' : { address: '93.184.216.34' },
  )
  const resolver = new HostResolver([names.server])
  for (let n = 0; n < 64; n += 1) resolver.resolve(`dead${n}.example`, 1n).catch(() => undefined)
  const ofFirst = resolver.resolve('hooks.example', 1n).catch(() => 'no place')
  await expect(resolver.resolve('hooks.example', 2n)).resolves.toHaveLength(1)
  await ofFirst
  await expect(resolver.resolve('hooks.example', 3n)).resolves.toHaveLength(1)
})
