/** `oa-audience setup`: from an empty database to a client's first request. */
import { spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { PassThrough } from 'node:stream'
import { describe, expect, it } from 'vitest'
import { ask } from '../../src/cli/questions.ts'
import { lineEvent } from '../../tools/simulator/events.ts'
import { simulatePlatform } from '../../tools/simulator/platform.ts'
import { randomAccount } from '../../tools/simulator/state.ts'
import { atEnd } from '../support/at-end.ts'
import { runCommand } from '../support/command.ts'
import { urlOf } from '../support/database.ts'
import { temporaryDirectory } from '../support/process.ts'
import { setUpService } from '../support/service.ts'

const SECRET = '8c570fa6dd201bb328f1c1eac23a96d8'
const OPTIONS = [
  ...['--organization-name', 'My agency', '--name', "O'Reilly's Café"],
  ...['--channel-id', '2000000001', '--channel-secret', '-'],
]

async function setUp() {
  const { database, connection, service } = await setUpService()
  const platform = await simulatePlatform({
    ...randomAccount('First'),
    channelId: '2000000001',
    channelSecret: SECRET,
  })
  platform.addAccount({ ...randomAccount('Second'), channelId: '2000000002', channelSecret: SECRET })
  atEnd(() => platform.close())
  const env = {
    DATABASE_URL: urlOf(connection),
    PORT: new URL(service.url).port,
    LINE_API_URL: platform.url,
  }
  const counts = async () => {
    const [row] = await database.query(
      `select (select count(*)::int from organization) as organizations,
              (select count(*)::int from official_account) as accounts,
              (select count(*)::int from api_client) as clients, (select count(*)::int from api_key) as keys`,
    )
    return row
  }
  return { database, service, env, counts }
}

/** For a second run that adds something. */
const ANOTHER_CHANNEL = [
  ...['--organization-name', 'Another agency', '--name', 'x'],
  ...['--channel-id', '2000000002', '--channel-secret', '-'],
]

const setup = (env: Record<string, string>, options: string[], input = `${SECRET}\n`) =>
  runCommand(['setup', ...options], env, { input })

const curlLines = (stdout: string) =>
  stdout
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line.startsWith('curl '))

it('prints curl lines that work when they are pasted, and the addresses that accept deliveries', async () => {
  const { service, env } = await setUp()
  const { status, stdout, stderr } = await setup(env, OPTIONS)
  expect({ status, stderr }).toEqual({ status: 0, stderr: '' })
  const [tracking = '', list = ''] = curlLines(stdout)
  // Asynchronous, because this process serves the requests.
  const paste = async (line: string) => {
    const child = spawn('sh', ['-c', line], { stdio: ['ignore', 'pipe', 'inherit'] })
    let output = ''
    child.stdout.on('data', (chunk: Buffer) => {
      output += chunk.toString()
    })
    await new Promise((resolve) => child.once('close', resolve))
    return JSON.parse(output)
  }
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

it('prints public addresses if PUBLIC_URL is set, and one JSON object with --json', async () => {
  const { env } = await setUp()
  const withEnv = { ...env, PUBLIC_URL: 'https://oa.example.com' }
  const { stdout } = await setup(withEnv, [...OPTIONS, '--json'])
  const added = JSON.parse(stdout)
  expect(Object.keys(added)).toEqual([
    ...['organizationId', 'accountId', 'oaHash', 'trackingKey', 'webhookUrl', 'callbackUrl'],
    ...['clientId', 'clientSecret', 'key'],
  ])
  expect(added.webhookUrl).toBe(`https://oa.example.com/api/line/${added.accountId}`)
  expect(added.callbackUrl).toBe(`https://oa.example.com/api/mbox/callback/${added.oaHash}`)
})

it('says what keeps LINE from reaching PUBLIC_URL, and adds the account nevertheless', async () => {
  const { env, counts } = await setUp()
  const before = await counts()
  const { status, stdout } = await setup({ ...env, PUBLIC_URL: 'https://127.0.0.1:9' }, ANOTHER_CHANNEL)
  expect([status, (await counts())?.accounts]).toEqual([0, (before?.accounts as number) + 1])
  expect(stdout).not.toContain('PUBLIC_URL is not set')
  expect(stdout).toMatch(
    /Can LINE reach this service\?\n {2}Nothing responds at PUBLIC_URL \(ECONNREFUSED\)\. Start the proxy/,
  )
  expect(stdout).toMatch(/run "oa-audience accounts verify \d+ --test-webhook"\.\n$/)
})

it('adds nothing the second time, and says what exists', async () => {
  const { env, counts } = await setUp()
  const { organizationId, accountId } = JSON.parse((await setup(env, [...OPTIONS, '--json'])).stdout)
  const after = await counts()
  const refusals = [OPTIONS, ['--organization-name', 'Other', ...OPTIONS.slice(2)]]
  for (const options of refusals) {
    const { status, stderr } = await setup(env, options)
    expect({ status, stderr }).toEqual({
      status: 1,
      stderr:
        `oa-audience: channel 2000000001 is already account ${accountId} "O'Reilly's Café" of organization ${organizationId} ` +
        `"My agency". Nothing was added. Run "oa-audience accounts show ${accountId}" to see its addresses, or ` +
        `"oa-audience keys add --client ID --account ${accountId}" for another key.\n`,
    })
  }
  const otherChannel = ['--channel-id', '2', '--channel-secret', '-']
  const sameOrganization = await setup(env, [...OPTIONS.slice(0, 4), ...otherChannel])
  expect(sameOrganization.stderr).toContain(
    `organization ${organizationId} "My agency" already exists. Nothing`,
  )
  expect(await counts()).toEqual(after)
})

it('adds all four rows or none', async () => {
  const { env, counts } = await setUp()
  const before = await counts()
  expect((await setup(env, [...OPTIONS, '--tracking-key', 'ours'])).status).toBe(0)
  const after = await counts()
  expect(Object.values(after ?? {})).toEqual(
    Object.values(before ?? {}).map((count) => (count as number) + 1),
  )
  const refused = await setup(env, [...ANOTHER_CHANNEL, '--tracking-key', 'ours'])
  expect(refused.status).toBe(1)
  expect(refused.stderr).toMatch(/^oa-audience: another account already has this tracking key\. [^\n]+\n$/)
  expect(await counts()).toEqual(after)
})

it('makes a database without faults and says where, and no other command makes one', async () => {
  const DATA_DIR = join(temporaryDirectory(), 'data')
  for (const args of [
    ['accounts', 'list'],
    ['migrate'],
    ['doctor'],
    ['audience', 'export', '--account', '1'],
  ]) {
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
  const platform = await simulatePlatform()
  const doctor = await runCommand(['doctor', '--json'], { DATA_DIR, LINE_API_URL: platform.url })
  await platform.close()
  for (const check of ['configuration', 'database', 'migrations', 'platform', 'clock'])
    expect(JSON.parse(doctor.stdout)).toContainEqual(expect.objectContaining({ check, severity: 'ok' }))
  expect(doctor.status).toBe(0)
})

describe('without a terminal', () => {
  it.each([
    [OPTIONS.slice(2), '--organization-name is missing'],
    [['--name', 'x'], '--organization-name, --channel-id, --channel-secret are missing'],
    [['--name', ' '], '--name must not be empty'],
  ])('%j is refused with one line', async (options, message) => {
    const { status, stderr } = await setup({ DATABASE_URL: 'none' }, options)
    expect(status).toBe(1)
    expect(stderr).toMatch(/^oa-audience: [^\n]+\n$/)
    expect(stderr).toContain(message)
  })
})

describe('on a terminal', () => {
  const QUESTIONS = [
    { name: 'shown', text: 'Shown', isSecret: false },
    { name: 'hidden', text: 'Hidden', isSecret: true },
  ]
  const onScreen = () => {
    const [input, screen] = [new PassThrough(), new PassThrough()]
    let text = ''
    screen.on('data', (chunk: Buffer) => {
      text += chunk.toString()
    })
    return { input, screen, text: () => text }
  }

  it('asks again after a blank answer', async () => {
    const { input, screen, text } = onScreen()
    const answers = ask(QUESTIONS, input, screen)
    input.write(' \nvisible\n\nthe-secret\n')
    expect(await answers).toEqual({ shown: 'visible', hidden: 'the-secret' })
    expect(text().match(/Shown: /g)).toHaveLength(2)
    expect(text().match(/Hidden: /g)).toHaveLength(2)
    expect(text()).toContain('visible')
    expect(text()).not.toContain('the-secret')
  })

  it('fails if the input ends before the last answer', async () => {
    const { input, screen } = onScreen()
    const answers = ask(QUESTIONS, input, screen)
    input.end('visible\n')
    await expect(answers).rejects.toThrow('the input ended')
  })
})
