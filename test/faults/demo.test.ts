/** `demo` shows the main job, can be run again, and its curl lines work. */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { readdirSync } from 'node:fs'
import { expect, it, onTestFinished, vi } from 'vitest'
import { Operator } from '../support/console.ts'
import { MAIN, runProgram, temporaryDirectory } from '../support/process.ts'

/** The embedded server needs seconds to start, and a multiple of that on a busy machine. */
const START_MAX_MS = 60_000
vi.setConfig({ testTimeout: 180_000 })

/** Resolves with the output when the demo has printed all steps and waits for Ctrl-C. */
async function startDemo(dataDir: string): Promise<{ child: ChildProcess; output: string }> {
  const env = { PATH: process.env.PATH, DATA_DIR: dataDir, PORT: '0' }
  const child = spawn(process.execPath, [MAIN, 'demo'], { env, stdio: ['ignore', 'pipe', 'inherit'] })
  onTestFinished(() => void child.kill('SIGINT'))
  let output = ''
  child.stdout.on('data', (chunk: Buffer) => {
    output += chunk.toString()
  })
  await expect.poll(() => output, { timeout: START_MAX_MS }).toContain('Ctrl-C ends it')
  return { child, output }
}

function expectSteps(output: string): void {
  expect(output.match(/^\d{3}(?= )/gm)?.map(Number)).toEqual([
    ...[200, 200, 200, 200, 200, 200, 200, 200, 200, 200],
    ...[204, 200, 200, 401],
  ])
  expect(output).toContain('{"accepted":0,"duplicates":1}')
  expect(output).toContain('"verified": true')
  expect(output).toContain('/receive/chat-tool  line  signature valid  message, follow, memberJoined')
  expect(output).toMatch(/\/receive\/crm {2}members {2}signature valid {2}member\.erased \d+/)
  expect(output).not.toContain('\u001b')
}

function expectPastable(output: string): void {
  const lines = output.match(/^curl .+$/gm) ?? []
  expect(lines).toHaveLength(14)
  const answers = lines.map((line) => execFileSync('sh', ['-c', line], { encoding: 'utf8' }))
  expect(answers[0]).toBe('{"accepted":0,"duplicates":1}')
  expect(answers[2]).toBe('{"accepted":0,"duplicates":3}')
  expect(JSON.parse(answers[5] as string).data).toHaveLength(3)
}

/** Verifies each account, and returns the actions of the fictitious operators and of the service. */
async function readConsole(output: string): Promise<string[]> {
  const [, url = '', token = ''] = /^ {2}(http:\S+) +token: (\S+)$/m.exec(output) ?? []
  const operator = new Operator(url)
  expect((await operator.signIn(token)).status).toBe(200)
  // An account of each state. The one of an earlier run is gone.
  const fleet = async () => {
    const { fleet: accounts } = (await operator.get('/api/fleet')).json
    return (accounts as Array<{ id: string; status: string }>).map(({ id, status }) => ({ id, status }))
  }
  await expect.poll(async () => new Set((await fleet()).map(({ status }) => status)).size).toBe(4)
  const before = await fleet()
  expect(before).toHaveLength(10)
  for (const { id, status } of before) {
    const { json } = await operator.post(`/api/accounts/${id}/verify`, { testWebhook: true })
    if (status === 'ok') expect(json, id).toMatchObject({ verified: true })
  }
  expect(await fleet()).toEqual(before)
  expect((await operator.get('/api/events')).json.events.length).toBeGreaterThan(0)
  // md5('follows both'): see tools/demo/fleet.ts.
  const { people } = (await operator.get('/api/search?q=Ueec2cf7b949dd244f6e1caecd31340bb')).json
  expect(people[0].memberships).toHaveLength(2)
  const { activity } = (await operator.get('/api/activity')).json as {
    activity: Array<{ action: string; actor: string }>
  }
  return activity
    .filter(({ actor }) => !actor.includes('@') || actor.endsWith('@example.com'))
    .map(({ action }) => action)
    .filter((action) => action !== 'account.verified')
}

/** npm forwards the signal that the terminal has already sent. */
async function interruptTwice({ child, output }: Awaited<ReturnType<typeof startDemo>>): Promise<void> {
  const url = /http:\/\/127\.0\.0\.1:\d+/.exec(output)?.[0] ?? ''
  const health = () =>
    fetch(`${url}/api/health`).then(
      ({ status }) => status,
      () => 'closed',
    )
  const exited = once(child, 'exit')
  child.kill('SIGINT')
  await expect.poll(health, { timeout: START_MAX_MS }).not.toBe(200)
  child.kill('SIGINT')
  expect(await exited).toEqual([0, null])
}

it('prints curl lines that work, shows a fleet and its activity, and exits with 0, also on the data of an earlier run', async () => {
  const dataDir = temporaryDirectory()
  const actions: string[][] = []
  for (let run = 1; run <= 2; run += 1) {
    const demo = await startDemo(dataDir)
    expectSteps(demo.output)
    expectPastable(demo.output)
    actions.push(await readConsole(demo.output))
    await interruptTwice(demo)
  }
  expect(actions[0]).toEqual(
    expect.arrayContaining([
      ...['account.added', 'account.followers_imported', 'account.suspended', 'account.resumed'],
      ...['endpoint.gone', 'endpoint.paused', 'endpoint.resumed', 'member.erased', 'operator.added'],
    ]),
  )
  expect(actions[1]).toEqual(actions[0])
  expect(readdirSync(dataDir)).toEqual(['demo'])
})

it('shows incidents, and a changed channel secret that heals, with --incidents', () => {
  const { status, stdout } = runProgram(['demo', '--incidents', '--json'], { DATA_DIR: temporaryDirectory() })
  expect(status).toBe(0)
  const incidents = stdout
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line))
  expect(incidents).toHaveLength(5)
  expect(incidents.at(-1)?.messages.join()).toMatch(/answered 403.*20 of 20 people are members/)
})
