/** Long work of operators while processes are killed. console-load.test.ts has it beside deliveries. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { text } from 'node:stream/consumers'
import { expect, it } from 'vitest'
import { AppError } from '../../src/errors.ts'
import type { Platform } from '../../src/jobs/step.ts'
import { startSignedIn } from '../support/console.ts'
import { endOf, endWaitsOfJobs, startJobRunner, uploadFile } from '../support/jobs.ts'
import { load, loadMembers } from '../support/load.ts'
import { environment, eventually, MAIN, runProgramAsync, spawnService } from '../support/process.ts'
import { setUpService } from '../support/service.ts'

const MEMBERS = 20_000
const KILLS = 3

/** Two processes work on the job. One of them is killed again and again, wherever it is, and replaced. */
async function killWhileRunning(env: Record<string, string>, readDone: () => Promise<number>, total: number) {
  await spawnService(env)
  for (let kill = 1; kill <= KILLS; kill += 1) {
    const { child, exited } = await spawnService(env)
    await eventually(readDone, (done) => done > (total * kill) / (KILLS + 2))
    child.kill('SIGKILL')
    await exited
  }
}

async function setUp() {
  const parts = await setUpService()
  const { operator } = await startSignedIn(parts.database)
  const doneOf = (id: string) => async () => Number((await operator.get(`/api/jobs/${id}`)).json.job.done)
  return { ...parts, operator, doneOf }
}

it('finishes a removal of which the command is interrupted and then killed', async () => {
  const { database, tenant, env } = await setUp()
  await loadMembers(database, tenant, MEMBERS)
  const left = async () => {
    const [row] = await load<{ count: number }>(
      database,
      'select count(*)::int as count from audience_member',
    )
    return row?.count ?? 0
  }
  const remove = ['accounts', 'remove', String(tenant.accountId), '--yes']
  for (const [round, signal] of (['SIGINT', 'SIGKILL'] as const).entries()) {
    const child = spawn(process.execPath, [MAIN, ...remove], { env: environment(env) })
    const printed = text(child.stderr)
    await eventually(left, (count) => count < MEMBERS - 4_000 * (round + 1))
    child.kill(signal)
    expect(await once(child, 'close')).toEqual(signal === 'SIGINT' ? [130, null] : [null, signal])
    if (signal === 'SIGINT') expect(await printed).toMatch(/Job \d+ goes on while the service runs/)
    expect(await left()).toBeGreaterThan(0)
    await endWaitsOfJobs(database)
  }
  const { stdout, status } = await runProgramAsync([...remove, '--json'], env)
  expect({ status, removed: JSON.parse(stdout).removed }).toEqual({ status: 0, removed: true })
  expect(await load(database, 'select status, done from job')).toEqual([
    { status: 'done', done: expect.any(BigInt) },
  ])
  expect(await left()).toBe(0)
})

it('finishes an import of which several processes are killed, and applies each line once', async () => {
  const { database, tenant, env, operator, doneOf } = await setUp()
  await loadMembers(database, tenant, MEMBERS)
  // A line that is applied twice, or not at all, changes the number of refused lines, or the version.
  const lines = Array.from({ length: MEMBERS }, (_, index) =>
    index % 100 === 99 ? `Unobody${index},` : `U${index + 1},"[""a"",""${index}""]"`,
  )
  const file = ['userId,tags', ...lines].join('\n')
  const job = await uploadFile(operator, tenant, 'csv', file)
  await killWhileRunning(env, doneOf(job.id), file.length)
  const { status, tally } = await endOf(operator, job)
  const refused = MEMBERS / 100
  expect(status).toBe('done')
  expect(tally).toMatchObject({ changed: MEMBERS - refused, unchanged: 0, refused })
  const rows = await load(
    database,
    `select version, count(*)::int as members from audience_member group by version order by version`,
  )
  expect(rows).toEqual([
    { version: 1n, members: refused },
    { version: 2n, members: MEMBERS - refused },
  ])
  expect(await load(database, 'select from job_file')).toEqual([])
})

it('a shutdown waits a few seconds for a job that waits for LINE', async () => {
  const { database, operator, tenant } = await setUp()
  let refuse = (_error: Error): void => undefined
  const slow = new Promise<never>((_resolve, reject) => {
    refuse = reject
  })
  const lineApi = new Proxy({}, { get: () => () => slow }) as Platform['lineApi']
  await operator.post(`/api/accounts/${tenant.accountId}/followers`)
  const runner = startJobRunner(database, { lineApi, publicUrl: null, webhookPaths: () => [], now: Date.now })
  await expect.poll(() => load(database, 'select from job where claim = 1')).toHaveLength(1)
  await runner.stop()
  refuse(new AppError('platform_unavailable'))
})
