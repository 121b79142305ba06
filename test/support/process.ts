/** The built service and its commands as processes, as users run them. */
import { type ChildProcess, execFileSync, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { fileURLToPath } from 'node:url'
import { inspect } from 'node:util'
import { inject, onTestFinished } from 'vitest'
import { atEnd } from './at-end.ts'
import { addTenant, createTestDatabase } from './database.ts'

export const MAIN = fileURLToPath(new URL('../../dist/src/cli/main.js', import.meta.url))

/** Reached only by a failure: a machine with a third of the usual speed needs a few seconds. */
const COMMAND_MAX_MS = 60_000
const POLL_MS = 20

/** How a process ended. */
interface Exit {
  code: number | null
  signal: NodeJS.Signals | null
}

export interface ServiceProcess {
  child: ChildProcess
  url: string
  /** everything printed so far, on standard output and standard error */
  output: () => string
  exited: Promise<Exit>
}

/** A directory that is removed with its test or file. */
export function temporaryDirectory(): string {
  const directory = mkdtempSync(join(tmpdir(), 'oa-audience-test-'))
  // A PostgreSQL server that was killed may still write its last file: removing is tried again for 20 × 100 ms = 2 s.
  atEnd(() => rmSync(directory, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 }))
  return directory
}

export function writeTemporaryFile(name: string, content: string | Buffer): string {
  const path = join(temporaryDirectory(), name)
  writeFileSync(path, content)
  return path
}

export function environment(env: Record<string, string>): NodeJS.ProcessEnv {
  const { PATH, HOME } = process.env
  // No test reaches LINE. Commands say that it does not respond.
  return { PATH, HOME, PORT: '0', LOG_LEVEL: 'info', LINE_API_URL: 'http://127.0.0.1:9', ...env }
}

/** Starts `oa-audience serve`, by default of this checkout. Resolves when the service logs its address, and rejects with its output if it exits first. */
export function spawnService(
  env: Record<string, string>,
  main = MAIN,
  cwd?: string,
): Promise<ServiceProcess> {
  const child = spawn(process.execPath, [main, 'serve'], {
    cwd,
    env: environment(env),
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  let output = ''
  const exited = new Promise<Exit>((resolve) =>
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

/** Environment of an instance without the rate limit of requests. */
export const NO_LIMITS = { RATE_LIMIT_MAX: '0' }

/** A database of the test's own with a tenant, and the built service on it. */
export async function setUpProcess(variables: Record<string, string> = {}) {
  const created = await createTestDatabase()
  const env = { ...created.env, ...NO_LIMITS, ...variables }
  return { ...created, env, tenant: await addTenant(created.database), service: await startHealthy(env) }
}

/** Starts the service and waits until it is healthy. */
export async function startHealthy(...parameters: Parameters<typeof spawnService>): Promise<ServiceProcess> {
  const service = await spawnService(...parameters)
  await becomesWell(service.url)
  return service
}

/** Runs a command of the command line and waits for its end. */
export function runProgram(
  args: string[],
  env: Record<string, string> = {},
  { main = MAIN, ...options }: { main?: string; cwd?: string; input?: string } = {},
) {
  const { status, stdout, stderr } = spawnSync(process.execPath, [main, ...args], {
    env: environment(env),
    encoding: 'utf8',
    timeout: COMMAND_MAX_MS,
    ...options,
  })
  return { status, stdout, stderr }
}

/** Calls `ask` until `wanted` accepts its answer. Throws after the limit, with both and the last answer. */
export async function eventually<T>(
  ask: () => Promise<T>,
  wanted: (answer: T) => boolean,
  limitMs = inject('waitMaxMs'),
): Promise<T> {
  const deadline = Date.now() + limitMs
  for (;;) {
    const answer = await ask().catch((error) => error as T)
    if (wanted(answer)) return answer
    if (Date.now() > deadline) {
      throw new Error(`waited ${limitMs} ms for ${wanted} of ${ask}; the last one is ${inspect(answer)}`)
    }
    await new Promise((resolve) => setTimeout(resolve, POLL_MS))
  }
}

/** Runs a command without blocking this process, so that the command can call a server in it. */
export async function runProgramAsync(
  args: string[],
  env: Record<string, string> = {},
  main = MAIN,
): Promise<{ status: number | null; stdout: string; stderr: string }> {
  const child = spawn(process.execPath, [main, ...args], {
    env: environment(env),
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  const closed = once(child, 'close')
  const [stdout, stderr] = await Promise.all([text(child.stdout), text(child.stderr)])
  const [status] = await closed
  return { status, stdout, stderr }
}

/** Starts a command that runs until it is stopped. `lines` are those of its standard output so far. */
export function startCommand(args: string[], env: Record<string, string> = {}) {
  const child = spawn(process.execPath, [MAIN, ...args], {
    env: environment(env),
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  let output = ''
  child.stdout.on('data', (chunk: Buffer) => {
    output += chunk.toString()
  })
  const exited = new Promise<Exit>((resolve) =>
    child.once('exit', (code, signal) => resolve({ code, signal })),
  )
  const stop = () => {
    child.kill('SIGTERM')
    return exited
  }
  onTestFinished(() => stop().then(() => undefined))
  return { child, lines: () => output.split('\n').slice(0, -1), stop }
}

/** Resolves when the service at that address reports that it is healthy. */
export async function becomesWell(url: string, limitMs?: number): Promise<void> {
  await eventually(
    async () => (await fetch(`${url}/api/health`)).status,
    (status) => status === 200,
    limitMs,
  )
}

/** Resident memory of a process. Linux and macOS have ps. */
export const residentMiB = ({ child }: ServiceProcess) =>
  Number(execFileSync('ps', ['-o', 'rss=', '-p', String(child.pid)], { encoding: 'utf8' })) / 1024
