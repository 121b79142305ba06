/** The service that `oa-audience prove` kills, and the proxies between the service and its database. */
import { type ChildProcess, spawn } from 'node:child_process'
import { type AddressInfo, createServer } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { environmentOfPrograms } from '../../src/config/config.ts'
import { type DatabaseServer, parseDatabaseUrl } from '../../src/config/database-url.ts'
import { FatalError } from '../../src/errors.ts'
import { TcpProxy } from '../simulator/tcp-proxy.ts'

/** A service that is not healthy after this time has failed to recover. */
export const RECOVERY_MS = 60_000
const HEALTH_TIMEOUT_MS = 2_000
const RETRY_MS = 50

/** A service as a child process that can be killed and restarted on the same port. */
export class Service {
  readonly url: string
  readonly #args: string[]
  readonly #output: 'ignore' | number
  readonly #env: Record<string, string>
  #child: ChildProcess | null = null

  /**
   * @param args the program and its arguments
   * @param env the only configuration: what the shell holds is meant for the real service
   * @param output file descriptor for what it prints
   */
  constructor(
    port: number,
    args: string[],
    env: Record<string, string>,
    output: 'ignore' | number = 'ignore',
  ) {
    this.url = `http://127.0.0.1:${port}`
    this.#args = args
    this.#output = output
    this.#env = { ...environmentOfPrograms(), PORT: String(port), ...env }
  }

  get pid(): number | null {
    return this.#child?.pid ?? null
  }

  /** It was started, and has ended although nobody stopped it. */
  get hasEnded(): boolean {
    return this.#child !== null && (this.#child.exitCode ?? this.#child.signalCode) !== null
  }

  /** Resolves when the health check succeeds. */
  async start(): Promise<void> {
    for (const startedAtMs = Date.now(); Date.now() < startedAtMs + RECOVERY_MS; await sleep(RETRY_MS)) {
      if (this.#child === null || this.hasEnded) {
        // The pipe to its standard input closes when this process ends, even by SIGKILL, and then the child ends, too.
        this.#child = spawn(process.execPath, this.#args, {
          env: this.#env,
          stdio: ['pipe', this.#output, this.#output],
          // Ctrl-C on a terminal reaches the whole process group, but only this process decides when the service ends.
          detached: true,
        })
      }
      const isHealthy = await fetch(`${this.url}/api/health`, {
        signal: AbortSignal.timeout(HEALTH_TIMEOUT_MS),
      }).then(
        ({ ok }) => ok,
        () => false,
      )
      if (isHealthy) return
    }
    throw new FatalError(`the service did not recover within ${RECOVERY_MS / 1000} s`)
  }

  kill(): Promise<void> {
    return this.#end('SIGKILL')
  }

  stop(): Promise<void> {
    return this.#end('SIGTERM')
  }

  async #end(signal: NodeJS.Signals): Promise<void> {
    const child = this.#child
    this.#child = null
    if (child === null || (child.exitCode ?? child.signalCode) !== null) return
    const exited = new Promise((resolve) => child.once('exit', resolve))
    child.kill(signal)
    await exited
  }
}

/** Opens a proxy to each server of the database and returns them with the database's address through the proxies. */
export async function openProxies(address: string): Promise<{ proxies: TcpProxy[]; url: string }> {
  const { servers, mustWrite } = parseDatabaseUrl(address)
  const opened = await Promise.all(servers.map(openProxy))
  const { user, password, database } = servers[0]?.settings ?? {}
  const login = [user, password]
    .filter(Boolean)
    .map((part) => encodeURIComponent(part as string))
    .join(':')
  const parameters = new URLSearchParams(/\?(.*)$/.exec(address)?.[1])
  for (const name of ['host', 'port']) parameters.delete(name)
  if (mustWrite) parameters.set('target_session_attrs', 'read-write')
  const hosts = opened.map(({ port }) => `127.0.0.1:${port}`).join(',')
  return {
    proxies: opened.map(({ proxy }) => proxy),
    url: `postgres://${login}@${hosts}/${database ?? ''}?${parameters}`,
  }
}

async function openProxy({ settings }: DatabaseServer): Promise<{ proxy: TcpProxy; port: number }> {
  const { host, port } = settings
  const isSocket = host.startsWith('/')
  const proxy = new TcpProxy(isSocket ? { path: `${host}/.s.PGSQL.${port}` } : { host, port })
  const proxyPort = await proxy.listen()
  proxy.open()
  return { proxy, port: proxyPort }
}

/** A TCP port that was free a moment ago. */
export async function freePort(): Promise<number> {
  const server = createServer()
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as AddressInfo
  await new Promise((resolve) => server.close(resolve))
  return port
}
