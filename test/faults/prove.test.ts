/** `prove` on a database with real accounts changes nothing of them, and leaves nothing of its own, however it ends. */
import { type ChildProcess, spawn } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'
import { expect, it, onTestFinished, vi } from 'vitest'
import { createPartitions, EVENTS, TRACKING_EVENTS } from '../../src/upkeep/partitions.ts'
import type { TextDatabase } from '../../tools/text-database.ts'
import { readContents } from '../support/contents.ts'
import { addTenant, createTestDatabase, urlOf } from '../support/database.ts'
import { startReceiver } from '../support/endpoints.ts'
import { loadMembers } from '../support/load.ts'
import { MAIN, runProgramAsync } from '../support/process.ts'
import { newKey } from '../support/secret-keys.ts'

// A proof takes 20 s, and five times as long on a busy machine.
vi.setConfig({ testTimeout: 400_000 })

/** A production database: old rows that its operator keeps, and work that is due for its own instances. */
async function setUpProduction() {
  const { database, connection } = await createTestDatabase()
  await database.session(async (session) => {
    await createPartitions(session, EVENTS)
    await createPartitions(session, TRACKING_EVENTS)
  })
  const receiver = await startReceiver()
  const tenant = await addTenant(database, { channelAccessToken: 'token' })
  const { accountId } = tenant
  for (const statement of OLD_ROWS) await database.query(statement, [accountId])
  await loadMembers(database, tenant, 1)
  await database.query(
    `insert into endpoint (channel_oa_id, url, format, allow_private_network) values ($1, $2, 'members', true)`,
    [accountId, receiver.url],
  )
  await database.query(
    `insert into endpoint_delivery (channel_oa_id, endpoint_id, type) select channel_oa_id, id, 'account.verified' from endpoint`,
  )
  return { database, url: urlOf(connection), receiver }
}

/** $1 account id bigint. Older than every default retention. */
const OLD_ROWS = [
  `insert into event (channel_oa_id, source, kind, key, occurred_at, received_at, payload)
   select $1, 'line', 'message', gen_random_uuid(), now() - interval '3 years', now() - interval '3 years', '{}'
     from generate_series(1, 1000)`,
  `insert into tracking_event (channel_oa_id, kind, occurred_at, received_at, payload)
   select $1, 'page', now() - interval '100 days', now() - interval '100 days', '{}' from generate_series(1, 500)`,
  `insert into event_key (channel_oa_id, key, received_at)
   select $1, gen_random_uuid(), now() - interval '3 years' from generate_series(1, 700)`,
  `insert into unsent_message (channel_oa_id, message_id, unsent_at) values ($1, 'm', now() - interval '3 years')`,
  `insert into delivery_hour (channel_oa_id, hour, source) values ($1, now() - interval '1 year', 'line')`,
]

/** What an operator's shell may hold. None of it is for the proof. */
const SHELL = {
  ...{
    WEB_CONCURRENCY: '3',
    METRICS_PORT: '0',
    CONSOLE_PORT: '0',
    CONSOLE_TOKEN: 'a-token-of-24-characters',
  },
  ...{ RETENTION_DAYS: '0', TRACKING_RETENTION_DAYS: '365', DEDUPLICATION_DAYS: '4000' },
}

function startProve(env: Record<string, string>): ChildProcess {
  const child = spawn(process.execPath, [MAIN, 'prove', '--kills', '5000'], {
    env: { PATH: process.env.PATH, HOME: process.env.HOME, ...env },
    stdio: 'ignore',
  })
  onTestFinished(() => void child.kill('SIGKILL'))
  return child
}

/** Resolves with the number of accounts of proofs, as soon as each has stored members. */
async function receives(database: TextDatabase, accounts: number): Promise<void> {
  await expect
    .poll(() =>
      database.query(
        `select from official_account a
          where name = 'oa-audience prove' and exists (select from audience_member m where m.channel_oa_id = a.id)`,
      ),
    )
    .toHaveLength(accounts)
}

function readProcess(pid: number, file: 'environ' | 'cmdline'): string {
  try {
    return readFileSync(`/proc/${pid}/${file}`, 'utf8')
  } catch {
    return ''
  }
}

const commandOf = (pid: number) => readProcess(pid, 'cmdline')

/** Processes whose environment or arguments hold a text that only this test uses. */
function processesWith(text: string): number[] {
  const pids = readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
  return pids.filter(
    (pid) => pid !== process.pid && (readProcess(pid, 'environ') + commandOf(pid)).includes(text),
  )
}

const becomesEmpty = (text: string) => expect.poll(() => processesWith(text)).toHaveLength(0)

it('changes no row, sends nothing and leaves nothing of its own in a database with real accounts', async () => {
  const { database, url, receiver } = await setUpProduction()
  const before = await readContents(database)
  const command = ['prove', '--kills', '4', '--json']
  const { status, stdout, stderr } = await runProgramAsync(command, { ...SHELL, DATABASE_URL: url })
  expect(status, stderr).toBe(0)
  expect(JSON.parse(stdout)).toMatchObject({
    ...{ 'service killed': 2, 'network cut': 2, missing: 0, twice: 0, unknown: 0 },
  })
  expect(await readContents(database)).toEqual(before)
  expect(receiver.received).toEqual([])
})

it('leaves no process after a SIGKILL, and the next run removes what it left in the database', async () => {
  const { database, url } = await setUpProduction()
  const before = await readContents(database)
  // Names the processes of this test, which others may run beside.
  const child = startProve({ DATABASE_URL: `${url}&application_name=killed` })
  await receives(database, 1)
  const mark = new URL(url.replace('@/', '@x/')).pathname
  expect(processesWith(mark).length).toBeGreaterThan(1)
  child.kill('SIGKILL')
  await becomesEmpty(mark)
  expect(Object.keys(await readContents(database))).toContain('event')
  const { status, stderr } = await runProgramAsync(['prove', '--kills', '1'], { DATABASE_URL: url })
  expect(status, stderr).toBe(0)
  expect(await readContents(database)).toEqual(before)
})

it('leaves alone what another run is using', async () => {
  const { database, url } = await setUpProduction()
  const before = await readContents(database)
  const first = startProve({ DATABASE_URL: url })
  await receives(database, 1)
  // The secrets of its account are encrypted, and its service reads them.
  const env = { DATABASE_URL: url, SECRETS_KEYS: newKey('2026a') }
  const { status, stderr } = await runProgramAsync(['prove', '--kills', '1'], env)
  expect(status, stderr).toBe(0)
  await receives(database, 1)
  first.kill('SIGINT')
  await new Promise((resolve) => first.once('exit', resolve))
  expect(await readContents(database)).toEqual(before)
})
