/** compose.yaml by podman-compose, with the stand-ins of `.ci/containers` for PostgreSQL, Redis, Caddy and nginx. */
import { execFile, spawnSync } from 'node:child_process'
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { get } from 'node:https'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { lineEvent, randomUserId } from '../../tools/simulator/events.ts'
import { attempt, buildImage, canRunContainers, podman } from '../support/containers.ts'
import { sendDelivery } from '../support/service.ts'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const PROJECT = 'oa-audience-compose-test'
const [HTTP_PORT, HTTPS_PORT, CONSOLE_PORT] = [28_080, 28_443, 28_444]
const CHANNEL_SECRET = '8c570fa6dd201bb328f1c1eac23a96d8'
/** Retries of one delivery. The load sends one per second. */
const RETRIES_MAX = 3
const RETRY_MS = 1_000
const WAIT = { timeout: 60_000, interval: 250 }
const BUILD_TIMEOUT_MS = 900_000

const hasCompose = spawnSync('podman-compose', ['--version']).status === 0
if (!hasCompose)
  console.warn('\n!!! podman-compose is not installed: compose.yaml is NOT tested (.ci/containers)\n')
const canRun = canRunContainers('compose.yaml is') && hasCompose

const directory = mkdtempSync(join(tmpdir(), 'oa-audience-compose-'))
const nameOf = (service: string) => `${PROJECT}_${service}_1`
const IMAGES = ['oa-audience', 'oa-audience-backup'].map((name) => `localhost/${name}`)

async function compose(version: string, ...args: string[]): Promise<void> {
  const env = { ...process.env, VERSION: version, CONSOLE_HTTPS_PORT: String(CONSOLE_PORT) }
  const ports = { HTTP_PORT: String(HTTP_PORT), HTTPS_PORT: String(HTTPS_PORT) }
  await promisify(execFile)('podman-compose', ['-p', PROJECT, ...args], {
    cwd: directory,
    env: { ...env, ...ports },
    maxBuffer: 16 * 1024 * 1024,
  })
}

/** Replaces a container by a new one with a new address, as `docker compose up -d --no-deps SERVICE` does. */
async function recreate(version: string, service: string, ...files: string[]): Promise<void> {
  await podman('rm', '--force', '--time', '15', nameOf(service))
  await compose(version, ...files, 'up', '-d', '--no-build', service)
}

const becomesHealthy = (service: string) =>
  podman('exec', nameOf(service), 'oa-audience', 'health', '--wait', '60')

function removeEverything(): void {
  attempt(
    'rm',
    '--force',
    '--time',
    '0',
    ...attempt('ps', '-aq', '--filter', `label=io.podman.compose.project=${PROJECT}`)
      .output.split('\n')
      .filter(Boolean),
  )
  for (const volume of ['postgres', 'erasures', 'backups', 'certificates'])
    attempt('volume', 'rm', '--force', `${PROJECT}_${volume}`)
  attempt('network', 'rm', '--force', `${PROJECT}_default`)
}

const sql = (text: string, database = 'oa_audience') =>
  podman('exec', nameOf('postgres'), 'psql', '-U', 'oa_audience', '-d', database, '-Atc', text)

const status = (port: number, ca: string) =>
  new Promise<unknown>((resolve) => {
    const options = { host: 'localhost', family: 4, port, path: '/', ca }
    get(options, (response) => resolve(response.resume().statusCode)).on('error', resolve)
  })

describe.skipIf(!canRun)('compose.yaml', () => {
  let ca = ''
  let accountId = 0n
  /** Each user id occurs in one delivery. */
  const acknowledged: string[] = []
  let senders: Array<Promise<void>> = []
  let isStopped = false
  /** Failures of the delivery that needed most retries. */
  let worst: string[] = []

  /** Six senders repeat each delivery until it is accepted, as LINE does. */
  function startLoad(): void {
    isStopped = false
    const tenant = { accountId, channelSecret: CHANNEL_SECRET, botUserId: randomUserId() }
    const deliver = (event: object) =>
      sendDelivery(`https://localhost:${HTTPS_PORT}`, tenant, [event]).then(
        async (response) => `${response.status} ${await response.text()}`,
        ({ message }: Error) => message,
      )
    const send = async () => {
      for (; !isStopped; await sleep(20)) {
        const userId = randomUserId()
        const event = lineEvent('follow', userId)
        const failures: string[] = []
        for (let outcome = ''; !outcome.startsWith('200'); ) {
          if (outcome !== '') await sleep(RETRY_MS)
          outcome = await deliver(event)
          if (!outcome.startsWith('200')) failures.push(outcome)
          if (failures.length > worst.length) worst = failures
          if (isStopped) return
        }
        acknowledged.push(userId)
      }
    }
    senders = Array.from({ length: 6 }, send)
  }
  async function stopLoad(): Promise<void> {
    isStopped = true
    await Promise.all(senders)
  }
  /** After this number of further deliveries, the failures of the one that needed most retries. */
  async function worstOf(count: number): Promise<string[]> {
    const goal = acknowledged.length + count
    await expect.poll(() => acknowledged.length, WAIT).toBeGreaterThanOrEqual(goal)
    const found = worst
    worst = []
    return found
  }

  beforeAll(async () => {
    // fetch has no option for an authority. The status of each port is read with it.
    process.env.NODE_TLS_REJECT_UNAUTHORIZED = '0'
    removeEverything()
    for (const name of ['compose.yaml', 'compose.nginx.yaml', 'deploy'])
      cpSync(join(ROOT, name), join(directory, name), { recursive: true })
    // Debian's Caddy 2.6 has the older name of this option.
    const caddyfile = join(directory, 'deploy/Caddyfile')
    writeFileSync(
      caddyfile,
      readFileSync(caddyfile, 'utf8').replaceAll('request_buffers 1MiB', 'buffer_requests'),
    )
    await buildImage(`${IMAGES[0]}:test`)
    await buildImage(`${IMAGES[1]}:test`, '--target', 'backup')
  }, BUILD_TIMEOUT_MS)
  afterAll(async () => {
    await stopLoad()
    delete process.env.NODE_TLS_REJECT_UNAUTHORIZED
    removeEverything()
    for (const image of IMAGES) attempt('rmi', '--force', `${image}:test`)
    rmSync(directory, { recursive: true, force: true })
  })

  it('starts from nothing, with TLS and a first account', async () => {
    const startedMs = performance.now()
    spawnSync('sh', ['deploy/make-secrets.sh'], { cwd: directory })
    await compose('test', 'up', '-d', '--no-build')
    const inApp = (...args: string[]) => ['exec', nameOf('app-1'), 'oa-audience', ...args]
    await expect.poll(() => attempt(...inApp('accounts', 'list')).status, WAIT).toBe(0)
    const account = ['--name', 'a', '--channel-id', '1', '--channel-secret', CHANNEL_SECRET]
    const added = JSON.parse(
      await podman(...inApp('setup', '--organization-name', 'o', ...account, '--json')),
    )
    accountId = BigInt(added.accountId)
    const root = '/data/caddy/pki/authorities/local/root.crt'
    await expect.poll(() => attempt('exec', nameOf('proxy'), 'cat', root).status, WAIT).toBe(0)
    ca = await podman('exec', nameOf('proxy'), 'cat', root)
    startLoad()
    await worstOf(1)
    // With images and packages on the machine.
    console.info(`first accepted delivery after ${Math.round((performance.now() - startedMs) / 1_000)} s`)
  })

  it('replaces one instance after the other: each delivery is accepted within a few retries', async () => {
    for (const service of ['app-1', 'app-2']) {
      await recreate('test', service)
      await becomesHealthy(service)
      expect((await worstOf(100)).length).toBeLessThanOrEqual(RETRIES_MAX)
    }
  })

  it('restarts an instance whose process was killed', async () => {
    const format = ['--format', '{{.State.Pid}}', nameOf('app-2')]
    const pid = Number(await podman('inspect', ...format))
    process.kill(pid, 'SIGKILL')
    await expect.poll(async () => Number(await podman('inspect', ...format)), WAIT).not.toBe(pid)
    await becomesHealthy('app-2')
    expect((await worstOf(100)).length).toBeLessThanOrEqual(RETRIES_MAX)
  })

  it('accepts deliveries again after the database was stopped', async () => {
    await podman('stop', nameOf('postgres'))
    await podman('start', nameOf('postgres'))
    expect((await worstOf(100)).length).toBeLessThan(30)
  })

  it('shows the console on its own port only', async () => {
    expect(await status(CONSOLE_PORT, ca)).toBe(200)
    expect(await status(HTTPS_PORT, ca)).not.toBe(200)
  })

  it('makes a backup that can be restored into an empty database', async () => {
    await recreate('test', 'backup')
    const list = () => podman('exec', nameOf('backup'), 'sh', '-c', 'ls /backups | grep -c Z$ || true')
    await expect.poll(list, WAIT).not.toBe('0')
    await sql('create database restored', 'postgres')
    const restore =
      'DATABASE_URL=$(sed s,/oa_audience$,/restored, $DATABASE_URL_FILE); unset DATABASE_URL_FILE; export DATABASE_URL; ' +
      'oa-audience restore /backups/$(ls /backups | grep Z$ | tail -n 1)'
    await podman('exec', nameOf('backup'), 'sh', '-c', restore)
    expect(Number(await sql('select count(*) from audience_member', 'restored'))).toBeGreaterThan(100)
  })

  it('accepts deliveries by nginx, also after an instance has a new address', async () => {
    await stopLoad()
    const certificates = join(directory, 'certificates')
    mkdirSync(certificates)
    const files = ['-keyout', join(certificates, 'privkey.pem'), '-out', join(certificates, 'fullchain.pem')]
    const name = ['-subj', '/CN=localhost', '-addext', 'subjectAltName=DNS:localhost']
    spawnSync('openssl', ['req', '-x509', '-newkey', 'rsa:2048', '-nodes', ...files, ...name])
    await recreate('test', 'proxy', '-f', 'compose.yaml', '-f', 'compose.nginx.yaml')
    ca = readFileSync(join(certificates, 'fullchain.pem'), 'utf8')
    startLoad()
    await worstOf(1)
    await recreate('test', 'app-1')
    await becomesHealthy('app-1')
    expect((await worstOf(100)).length).toBeLessThanOrEqual(RETRIES_MAX)
    expect(await status(CONSOLE_PORT, ca)).toBe(200)
  })

  it('has stored every acknowledged delivery once', async () => {
    await stopLoad()
    const stored = (await sql('select user_id from event')).split('\n')
    const once = new Set(stored)
    expect(stored).toHaveLength(once.size)
    expect(acknowledged.filter((userId) => !once.has(userId))).toEqual([])
    console.info(`${acknowledged.length} deliveries acknowledged, 0 lost`)
  })
})
