/** `oa-audience health`: the health check of container platforms and service managers. */
import { setTimeout as sleep } from 'node:timers/promises'
import { readConfig } from '../config/config.ts'
import { FatalError } from '../errors.ts'
import { localUrl, readStart } from '../http/listen.ts'
import { between, type CliCommand } from './command.ts'
import { io } from './io.ts'

/** The service examines its database for at most 2 s before it responds. */
const RESPONSE_TIMEOUT_MS = 3_000
/** The response of this service is shorter than 500 bytes. */
const BODY_MAX_BYTES = 16 * 1024
const RETRY_MS = 250
const WAIT_MAX_SECONDS = 3_600

type Health = { url: string; status: string; database: string }

export function healthCommand(program: CliCommand): void {
  program
    .command('health')
    .description(
      'ask the service on this machine (HOST, PORT) whether it can work; exits with 1 if it cannot, or does not respond',
    )
    .option(
      '--wait <seconds>',
      'wait until it can work, for at most this time',
      between(0, WAIT_MAX_SECONDS),
      0,
    )
    .prints(async ({ wait }: { wait: number }) => {
      const { host, port } = readConfig(io.env)
      if (port === 0) throw new FatalError('PORT is 0, so the port is unknown. Set PORT as for the service.')
      const deadlineMs = performance.now() + wait * 1_000
      for (;;) {
        const { isHealthy, ...health } = await requestHealth(localUrl(host, port))
        if (isHealthy || performance.now() >= deadlineMs) {
          if (!isHealthy) io.exitCode = 1
          return health
        }
        await sleep(RETRY_MS)
      }
    })
}

async function requestHealth(url: string): Promise<Health & { isHealthy: boolean }> {
  try {
    const response = await fetch(`${url}/api/health`, {
      signal: AbortSignal.timeout(RESPONSE_TIMEOUT_MS),
      redirect: 'error',
    })
    const health = readHealth(await readStart(response.body, BODY_MAX_BYTES))
    if (health !== null) return { isHealthy: response.ok, url, ...health }
    // Any error of the service, such as 429, is not a health report.
    const status = response.ok ? 'is another program' : `responds with ${response.status}`
    return { isHealthy: false, url, status, database: 'unknown' }
  } catch {
    return { isHealthy: false, url, status: 'does not respond', database: 'unknown' }
  }
}

/** Returns null if another program has the port. Its text is not shown, because it may contain escape sequences. */
function readHealth(text: string): Omit<Health, 'url'> | null {
  try {
    const { status, database } = JSON.parse(text) as Partial<Health>
    if (!isWord(status) || !isWord(database)) return null
    return { status, database }
  } catch {
    return null
  }
}

const isWord = (value: unknown): value is string => typeof value === 'string' && /^[a-z-]{1,30}$/.test(value)
