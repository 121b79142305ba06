/** The upgrade of the embedded PostgreSQL between major versions, as docs/operate/upgrade.md describes it. */
import { spawn, spawnSync } from 'node:child_process'
import { chmodSync, chownSync, existsSync, mkdirSync, readdirSync, renameSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it, onTestFinished } from 'vitest'
import { findBinaries } from '../../src/postgres/embedded/cluster.ts'
import { findServer } from '../../src/postgres/embedded/postmaster.ts'
import { lineEvent, randomUserId } from '../../tools/simulator/events.ts'
import { addTenant, openDatabase, type Tenant, urlOf } from '../support/database.ts'
import { runProgram, type ServiceProcess, startHealthy, temporaryDirectory } from '../support/process.ts'
import { signedDelivery } from '../support/service.ts'

/** Where Debian installs PostgreSQL. The npm package has no pg_dump. */
const DEBIAN = '/usr/lib/postgresql'
const isRoot = process.getuid?.() === 0

const tools = findOlderPostgres()
if (tools === null) {
  console.warn(
    `\n!!! no older PostgreSQL is in ${DEBIAN}: the upgrade of the embedded server is NOT tested\n`,
  )
}

function findOlderPostgres(): string | null {
  const embedded = Number(findBinaries().major)
  const majors = existsSync(DEBIAN) ? readdirSync(DEBIAN).map(Number) : []
  const [major] = majors.filter((found) => found >= 14 && found < embedded).toSorted((a, b) => b - a)
  return major === undefined ? null : join(DEBIAN, String(major), 'bin')
}

function runTool(name: string, args: string[], owner = process.getuid?.()): void {
  const options = owner === undefined ? {} : { uid: owner }
  const { status, stderr } = spawnSync(join(tools ?? '', name), args, { ...options, encoding: 'utf8' })
  expect(status, stderr).toBe(0)
}

/** Runs the older PostgreSQL on DATA_DIR/postgres, as an older version of the service would. */
async function startOlderServer(dataDir: string): Promise<() => Promise<void>> {
  const directory = join(dataDir, 'postgres')
  mkdirSync(directory, { recursive: true, mode: 0o700 })
  // initdb needs a user with a name that is not root.
  if (isRoot) chownSync(directory, NOBODY, NOBODY)
  const { uid } = statSync(directory)
  runTool('initdb', ['-D', directory, '-U', 'postgres', '-A', 'trust', '-E', 'UTF8', '--locale=C'], uid)
  const settings = ['-c', 'listen_addresses=', '-c', `unix_socket_directories=${directory}`]
  const server = spawn(join(tools ?? '', 'postgres'), ['-D', directory, ...settings], {
    uid,
    stdio: 'ignore',
  })
  const exited = new Promise<void>((resolve) => server.once('exit', () => resolve()))
  onTestFinished(() => void server.kill('SIGQUIT'))
  await expect.poll(() => spawnSync(join(tools ?? '', 'pg_isready'), ['-h', directory]).status).toBe(0)
  runTool('createdb', ['-h', directory, '-U', 'postgres', 'oa_audience'])
  return async () => {
    server.kill('SIGINT')
    await exited
  }
}

const NOBODY = 65_534

async function stop(service: ServiceProcess): Promise<void> {
  service.child.kill('SIGINT')
  await service.exited
}

async function readMembers({ url }: ServiceProcess, { headers }: Tenant): Promise<unknown[]> {
  const answer = await fetch(`${url}/api/audience`, { headers })
  return ((await answer.json()) as { data: unknown[] }).data
}

it.runIf(tools !== null)('keeps members, keys of events and generated ids', async () => {
  const dataDir = temporaryDirectory()
  // The older server's user enters it.
  chmodSync(dataDir, 0o755)
  const host = join(dataDir, 'postgres')
  const server = ['-h', host, '-U', 'postgres']
  const connection = { host, port: 5432, user: 'postgres', database: 'oa_audience' }
  const stopOlderServer = await startOlderServer(dataDir)
  const older = await startHealthy({ DATABASE_URL: urlOf(connection) })
  const database = openDatabase(connection)
  const tenant = await addTenant(database)
  await database.close()
  const { path, init } = signedDelivery(tenant, [lineEvent('follow', randomUserId())])
  expect((await fetch(older.url + path, init)).status).toBe(200)
  const members = await readMembers(older, tenant)
  await stop(older)
  const dump = join(dataDir, 'audience.dump')
  runTool('pg_dump', [...server, '--format', 'custom', '--file', dump, 'oa_audience'])
  await stopOlderServer()

  const refused = runProgram(['serve'], { DATA_DIR: dataDir })
  expect(refused.stderr).toMatch(/^oa-audience: .+ Follow "Upgrade the embedded PostgreSQL" in .+\n$/)
  renameSync(host, `${host}-older`)
  const first = await startHealthy({ DATA_DIR: dataDir })
  const replace = ['drop database oa_audience with (force)', 'create database oa_audience']
  runTool('psql', [...server, ...replace.flatMap((statement) => ['-c', statement])])
  runTool('pg_restore', [...server, '-d', 'oa_audience', '--single-transaction', dump])
  await stop(first)

  const upgraded = await startHealthy({ DATA_DIR: dataDir })
  expect(await readMembers(upgraded, tenant)).toEqual(members)
  expect(await (await fetch(upgraded.url + path, init)).json()).toEqual({ accepted: 0, duplicates: 1 })
  const next = signedDelivery(tenant, [lineEvent('follow', randomUserId())])
  expect((await fetch(upgraded.url + next.path, next.init)).status).toBe(200)
  expect(await readMembers(upgraded, tenant)).toHaveLength(2)
  await stop(upgraded)
  expect(findServer(host)).toBeNull()
})
