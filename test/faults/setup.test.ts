/** `oa-audience setup`: from an empty database to a client's first request. */
import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { PassThrough } from 'node:stream'
import { promisify } from 'node:util'
import { expect, it } from 'vitest'
import { ask } from '../../src/cli/questions.ts'
import { lineEvent } from '../../tools/simulator/events.ts'
import { randomAccount } from '../../tools/simulator/state.ts'
import { runCommand } from '../support/command.ts'
import { urlOf } from '../support/database.ts'
import { startPlatform } from '../support/platform.ts'
import { temporaryDirectory } from '../support/process.ts'
import { setUpService } from '../support/service.ts'

const SECRET = '8c570fa6dd201bb328f1c1eac23a96d8'
const OPTIONS = [
  ...['--organization-name', 'My agency', '--name', "O'Reilly's Café"],
  ...['--channel-id', '2000000001', '--channel-secret', '-'],
]

async function setUp() {
  const { database, connection, service } = await setUpService()
  const platform = await startPlatform({
    ...randomAccount('First'),
    channelId: '2000000001',
    channelSecret: SECRET,
  })
  platform.addAccount({ ...randomAccount('Second'), channelId: '2000000002', channelSecret: SECRET })
  const env = {
    DATABASE_URL: urlOf(connection),
    PORT: new URL(service.url).port,
    LINE_API_URL: platform.url,
  }
  const tables = ['organization', 'official_account', 'api_client', 'api_key']
  const counts = () =>
    Promise.all(tables.map(async (table) => (await database.query(`select from ${table}`)).length))
  return { service, env, counts }
}

/** For a second run that adds something. */
const ANOTHER_CHANNEL = [
  ...['--organization-name', 'Another agency', '--name', 'x'],
  ...['--channel-id', '2000000002', '--channel-secret', '-'],
]

const setup = (env: Record<string, string>, options: string[], input = `${SECRET}\n`) =>
  runCommand(['setup', ...options], env, { input })

it('prints curl lines that work when they are pasted, and the addresses that accept deliveries', async () => {
  const { service, env } = await setUp()
  const { status, stdout, stderr } = await setup(env, OPTIONS)
  expect({ status, stderr }).toEqual({ status: 0, stderr: '' })
  const [tracking = '', list = ''] = stdout.match(/(?<=^ *)curl .+/gm) ?? []
  const paste = async (line: string) => JSON.parse((await promisify(execFile)('sh', ['-c', line])).stdout)
  expect(await paste(tracking)).toMatchObject({ success: true, accepted: 1 })
  expect(await paste(list)).toEqual({ data: [], nextCursor: null })

  const [webhook = '', callback = ''] = [...stdout.matchAll(/^ {2}(http\S+)$/gm)].map(([, url]) => url)
  expect(webhook).toMatch(new RegExp(`^${service.url}/api/line/\\d+$`))
  const id = BigInt(webhook.split('/').at(-1) as string)
  const tenant = { accountId: id, channelSecret: SECRET, botUserId: 'U1' } as never
  expect((await service.deliver(tenant, [lineEvent('follow', 'Ufirst')])).json).toMatchObject({ accepted: 1 })
  expect((await fetch(callback, { method: 'POST', body: '{"event":"x","id":1}' })).status).toBe(200)
  for (const header of ['x-client-id', 'x-client-secret', 'x-api-key'])
    expect(stdout).toMatch(new RegExp(`^ {2}${header}: \\S+$`, 'm'))
  expect(stdout).toContain('PUBLIC_URL is not set')
  expect(stdout).not.toContain(SECRET)
})

it('says what keeps LINE from reaching PUBLIC_URL, and adds the account nevertheless', async () => {
  const { env, counts } = await setUp()
  const { status, stdout } = await setup({ ...env, PUBLIC_URL: 'https://127.0.0.1:9' }, ANOTHER_CHANNEL)
  expect([status, await counts()]).toEqual([0, [2, 2, 2, 2]])
  expect(stdout).toMatch(/Can LINE reach this service\?\n {2}Nothing responds at PUBLIC_URL \(ECONNREFUSED\)/)
  expect(stdout).toMatch(/run "oa-audience accounts verify \d+ --test-webhook"\.\n$/)
})

it('adds all four rows, and then nothing beside what exists', async () => {
  const { env, counts } = await setUp()
  expect(await counts()).toEqual([1, 1, 1, 1])
  const added = await setup(env, [...OPTIONS, '--tracking-key', 'ours', '--json'])
  const { organizationId, accountId } = JSON.parse(added.stdout)
  expect(await counts()).toEqual([2, 2, 2, 2])
  const exists =
    `channel 2000000001 is already account ${accountId} "O'Reilly's Café" of organization ${organizationId} ` +
    `"My agency". Nothing was added. Run "oa-audience accounts show ${accountId}" to see its addresses, or ` +
    `"oa-audience keys add --client ID --account ${accountId}" for another key.`
  for (const [options, message] of [
    [OPTIONS, exists],
    [['--organization-name', 'Other', ...OPTIONS.slice(2)], exists],
    [
      [...OPTIONS.slice(0, 4), ...ANOTHER_CHANNEL.slice(4)],
      `organization ${organizationId} "My agency" already`,
    ],
    [[...ANOTHER_CHANNEL, '--tracking-key', 'ours'], 'another account already has this tracking key. '],
  ] as const) {
    const { status, stderr } = await setup(env, [...options])
    expect([status, stderr]).toEqual([1, expect.stringContaining(`oa-audience: ${message}`)])
    expect(stderr.split('\n')).toHaveLength(2)
  }
  expect(await counts()).toEqual([2, 2, 2, 2])
})

it('makes a database without faults and says where, and no other command makes one', async () => {
  const DATA_DIR = join(temporaryDirectory(), 'data')
  for (const args of [['accounts', 'list'], ['migrate'], ['doctor']]) {
    const { status, stdout, stderr } = await runCommand(args, { DATA_DIR })
    expect(status).toBe(1)
    expect(stdout + stderr).toMatch(
      `DATA_DIR (${DATA_DIR}) has no database. Run the command in the folder of the service, or set DATA_DIR or DATABASE_URL`,
    )
  }
  expect(existsSync(DATA_DIR)).toBe(false)
  const { status, stdout, stderr } = await setup({ DATA_DIR }, [...OPTIONS, '--json'])
  expect([status, stderr]).toEqual([0, expect.stringContaining(`made a database in ${DATA_DIR}. `)])
  const { accountId } = JSON.parse(stdout)
  expect(JSON.parse((await runCommand(['accounts', 'list', '--json'], { DATA_DIR })).stdout)).toMatchObject([
    { id: accountId },
  ])
  const platform = await startPlatform()
  const doctor = await runCommand(['doctor', '--json'], { DATA_DIR, LINE_API_URL: platform.url })
  for (const check of ['configuration', 'database', 'migrations', 'LINE', 'clock'])
    expect(JSON.parse(doctor.stdout)).toContainEqual(expect.objectContaining({ check, severity: 'ok' }))
  expect(doctor.status).toBe(0)
})

it.each([
  [OPTIONS.slice(2), '--organization-name is missing'],
  [['--name', 'x'], '--organization-name, --channel-id, --channel-secret are missing'],
  [['--name', ' '], '--name must not be empty'],
])('%j is refused with one line without a terminal', async (options, message) => {
  const { status, stderr } = await setup({ DATABASE_URL: 'none' }, options)
  expect(status).toBe(1)
  expect(stderr).toMatch(/^oa-audience: [^\n]+\n$/)
  expect(stderr).toContain(message)
})

it('asks again on a terminal after a blank answer, and shows no secret', async () => {
  const [input, screen] = [new PassThrough(), new PassThrough()]
  const questions = [
    { name: 'shown', text: 'Shown', isSecret: false },
    { name: 'hidden', text: 'Hidden', isSecret: true },
  ]
  const answers = ask(questions, input, screen)
  input.write(' \nvisible\n\nthe-secret\n')
  expect(await answers).toEqual({ shown: 'visible', hidden: 'the-secret' })
  const text = String(screen.read())
  expect(text.match(/Shown: |Hidden: /g)).toEqual(['Shown: ', 'Shown: ', 'Hidden: ', 'Hidden: '])
  expect(text).toContain('visible')
  expect(text).not.toContain('the-secret')
})
