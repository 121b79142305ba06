/** CONTRACT: `demo` shows the main job, can be run twice, and its curl lines really do it. */
import { execFileSync, spawn } from 'node:child_process'
import { readdirSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { expect, it } from 'vitest'
import { eventually, runCommand, temporaryDirectory } from './support/process.ts'

it('runs to its end twice, with every step answered as it should be', () => {
  const dataDir = temporaryDirectory()
  for (let run = 1; run <= 2; run += 1) {
    const { status, stdout, stderr } = runCommand(['demo', '--once'], { DATA_DIR: dataDir })
    expect(stderr).toBe('')
    expect(status).toBe(0)
    const statuses = stdout.match(/^(?=\d{3} )\d{3}/gm)
    expect(statuses).toEqual([
      '200',
      '200',
      '200',
      '200',
      '200',
      '200',
      '200',
      '200',
      '204',
      '200',
      '200',
      '401',
    ])
    expect(stdout).toContain('{"accepted":0,"duplicates":1}')
    expect(stdout).toContain('"verified": true')
    expect(stdout.endsWith('\n')).toBe(true)
    expect(stdout).not.toContain('\u001b')
    expect(readdirSync(dataDir)).toEqual(['demo'])
  }
})

it('prints its steps as JSON lines when told so', () => {
  const { status, stdout } = runCommand(['demo', '--once', '--json'], { DATA_DIR: temporaryDirectory() })
  expect(status).toBe(0)
  const steps = stdout
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line))
  expect(steps.map(({ step }) => step)).toEqual(Array.from({ length: 12 }, (_, i) => i + 1))
  expect(steps[0]).toMatchObject({
    status: 200,
    curl: expect.stringMatching(/^curl /),
    answer: '{"accepted":1,"duplicates":0}',
  })
})

it('ends with one line when it cannot start', () => {
  const { status, stderr } = runCommand(['demo', '--once'], { DATA_DIR: '/proc/nowhere' })
  expect(status).toBe(1)
  expect(stderr).toMatch(/^oa-audience: cannot set up a PostgreSQL in DATA_DIR [^\n]+\n$/)
})

it('stays up until Ctrl-C, and its curl lines can be pasted', async () => {
  const main = fileURLToPath(new URL('../dist/src/cli/main.js', import.meta.url))
  const env = { PATH: process.env.PATH, DATA_DIR: temporaryDirectory(), PORT: '0' }
  const child = spawn(process.execPath, [main, 'demo'], { env, stdio: ['ignore', 'pipe', 'inherit'] })
  let output = ''
  child.stdout.on('data', (chunk) => {
    output += chunk
  })
  await eventually(
    async () => output,
    (text) => text.includes('Ctrl-C ends it'),
  )
  const lines = output.match(/^curl .+$/gm) ?? []
  expect(lines).toHaveLength(12)
  const answers = lines.map((line) => execFileSync('sh', ['-c', line], { encoding: 'utf8' }))
  expect(answers[0]).toBe('{"accepted":0,"duplicates":1}')
  expect(answers[2]).toBe('{"accepted":0,"duplicates":3}')
  expect(JSON.parse(answers[5] as string).data).toHaveLength(2)
  // From the terminal, and from npm, which passes it on.
  child.kill('SIGINT')
  setTimeout(() => child.kill('SIGINT'), 20)
  const [code] = await new Promise<Array<number | null>>((resolve) =>
    child.once('exit', (...result) => resolve(result as never)),
  )
  expect(code).toBe(0)
})
