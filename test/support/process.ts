/** The built service as a process of its own, as its users run it. */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { onTestFinished } from 'vitest'

const MAIN = fileURLToPath(new URL('../../dist/src/cli/main.js', import.meta.url))

export interface ServiceProcess {
  child: ChildProcess
  url: string
  /** all that it printed so far */
  output: () => string
  exited: Promise<{ code: number | null; signal: NodeJS.Signals | null }>
}

/** A directory that goes with the test. */
export function temporaryDirectory(): string {
  const directory = mkdtempSync(join(tmpdir(), 'oa-audience-test-'))
  // A PostgreSQL that was killed may still be writing its last file.
  onTestFinished(() => rmSync(directory, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 }))
  return directory
}

function environment(env: Record<string, string>): NodeJS.ProcessEnv {
  return { PATH: process.env.PATH, HOME: process.env.HOME, PORT: '0', LOG_LEVEL: 'info', ...env }
}

/** Starts `oa-audience serve` and resolves when it says where it listens, or rejects with what it said instead. */
export function spawnService(env: Record<string, string>): Promise<ServiceProcess> {
  const child = spawn(process.execPath, [MAIN, 'serve'], {
    env: environment(env),
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  let output = ''
  const exited = new Promise<{ code: number | null; signal: NodeJS.Signals | null }>((resolve) =>
    child.once('exit', (code, signal) => resolve({ code, signal })),
  )
  onTestFinished(async () => {
    child.kill('SIGINT')
    await Promise.race([exited, new Promise((resolve) => setTimeout(resolve, 9000))])
    child.kill('SIGKILL')
  })
  return new Promise((resolve, reject) => {
    const read = (chunk: Buffer) => {
      output += chunk.toString()
      const url = /listening on (http:\/\/[^"]+)/.exec(output)?.[1]
      if (url !== undefined) resolve({ child, url, output: () => output, exited })
    }
    child.stdout?.on('data', read)
    child.stderr?.on('data', read)
    void exited.then(({ code }) => reject(new Error(`exited with ${code}: ${output}`)))
  })
}

/** Runs a command of the command line to its end. */
export function runCommand(args: string[], env: Record<string, string> = {}, cwd?: string) {
  const { status, stdout, stderr } = spawnSync(process.execPath, [MAIN, ...args], {
    env: environment(env),
    encoding: 'utf8',
    timeout: 60_000,
    ...(cwd === undefined ? {} : { cwd }),
  })
  return { status, stdout, stderr }
}

/** Asks until the answer is the wanted one; throws after the limit with the last answer. */
export async function eventually<T>(
  ask: () => Promise<T>,
  wanted: (answer: T) => boolean,
  limitMs = 15_000,
): Promise<T> {
  const deadline = Date.now() + limitMs
  for (;;) {
    const answer = await ask().catch((error) => error as T)
    if (wanted(answer)) return answer
    if (Date.now() > deadline) throw new Error(`never came: ${JSON.stringify(answer) ?? answer}`)
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
}

/** The same, for a command that talks to something in this process. */
export function runCommandAsync(
  args: string[],
  env: Record<string, string> = {},
): Promise<{ status: number | null; stdout: string; stderr: string }> {
  const child = spawn(process.execPath, [MAIN, ...args], {
    env: environment(env),
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  const output = { stdout: '', stderr: '' }
  for (const name of ['stdout', 'stderr'] as const) {
    child[name].on('data', (chunk: Buffer) => {
      output[name] += chunk.toString()
    })
  }
  return new Promise((resolve) => child.once('close', (status) => resolve({ status, ...output })))
}

/** Resolves when the service at that address answers that it is well. */
export async function becomesWell(url: string, limitMs?: number): Promise<void> {
  await eventually(
    async () => (await fetch(`${url}/api/health`)).status,
    (status) => status === 200,
    limitMs,
  )
}
