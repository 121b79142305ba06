/** No acknowledged event is lost and none counts twice, while processes are killed and connections are cut. */
import { expect, it } from 'vitest'
import { lineEvent, randomUserId } from '../../tools/simulator/events.ts'
import type { TextDatabase } from '../../tools/text-database.ts'
import { runProgramAsync, type ServiceProcess, setUpProcess, temporaryDirectory } from '../support/process.ts'
import { sendDelivery } from '../support/service.ts'

it('loses and duplicates nothing when service and embedded PostgreSQL are killed 6 times', async () => {
  const { stdout, stderr, status } = await runProgramAsync(['prove', '--kills', '6', '--json'], {
    DATA_DIR: temporaryDirectory(),
  })
  expect(status, stderr).toBe(0)
  expect(JSON.parse(stdout)).toMatchObject({
    ...{ 'service killed': 2, 'PostgreSQL killed': 2, 'both killed': 2 },
    ...{ missing: 0, twice: 0, unknown: 0 },
  })
})

const eventCounts = async (database: TextDatabase) => {
  const rows = await database.query<{ user_id: string; event_count: bigint }>(
    'select user_id, event_count from audience_member',
  )
  return new Map(rows.map((row) => [row.user_id, Number(row.event_count)]))
}

/** Ends the sessions in which the service runs a statement, every 40 ms. `stop` returns how many it ended. */
function killSessions(database: TextDatabase, service: ServiceProcess): { stop: () => Promise<number> } {
  let isStopped = false
  const killing = (async () => {
    let count = 0
    while (!isStopped) {
      const killed = await database.query(
        `select pg_terminate_backend(pid) from pg_stat_activity
          where datname = current_database() and state <> 'idle' and application_name like '%process ' || $1`,
        [service.child.pid],
      )
      count += killed.length
      await new Promise((resolve) => setTimeout(resolve, 40))
    }
    return count
  })()
  return {
    stop: () => {
      isStopped = true
      return killing
    },
  }
}

it('loses and duplicates nothing when a flush is killed while the next one is pipelined behind it', async () => {
  const { database, tenant, service } = await setUpProcess()
  const killer = killSessions(database, service)
  const sendUntilAccepted = async () => {
    const events = [lineEvent('message', 'Uhot'), lineEvent('follow', randomUserId())]
    for (;;) {
      const { status } = await sendDelivery(service.url, tenant, events)
      if (status === 200) return
      expect(status).toBe(503)
    }
  }
  // 48 senders: more events than a batch needs to be pipelined behind another.
  const sender = async () => {
    for (let i = 0; i < 60; i += 1) await sendUntilAccepted()
  }
  await Promise.all(Array.from({ length: 48 }, sender))
  expect(await killer.stop()).toBeGreaterThan(5)
  expect((await eventCounts(database)).get('Uhot')).toBe(48 * 60)
})
