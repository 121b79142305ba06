/** The systemd units are valid and restrict the service, and their command lines run as an ordinary user without capabilities. */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { chmodSync, chownSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, it, onTestFinished, vi } from 'vitest'
import { freePort } from '../../tools/prove/service.ts'
import { lineEvent, randomUserId } from '../../tools/simulator/events.ts'
import { temporaryDirectory } from '../support/process.ts'
import { sendDelivery } from '../support/service.ts'

vi.setConfig({ testTimeout: 180_000 })

const CHECKOUT = fileURLToPath(new URL('../..', import.meta.url))
const SERVICES = ['oa-audience.service', 'oa-audience-backup.service']
const unitText = (name: string) => readFileSync(join(CHECKOUT, 'deploy', name), 'utf8')

const hasAnalyze = spawnSync('systemd-analyze', ['--version']).status === 0
if (!hasAnalyze)
  console.warn(
    '\n!!! systemd-analyze is not installed: the systemd units are NOT checked (apt-get install systemd)\n',
  )
const canSwitchUser = process.getuid?.() === 0 && spawnSync('unshare', ['--mount', 'true']).status === 0
if (!canSwitchUser)
  console.warn(
    '\n!!! This user cannot create mount namespaces: the command lines of the units are NOT run (run the test as root)\n',
  )

/** The lines that systemd-analyze prints about the units, with Node.js at the place of this machine. */
function verify(change: (text: string) => string = (text) => text): string {
  const directory = temporaryDirectory()
  const names = [...SERVICES, 'oa-audience-backup.timer']
  for (const name of names) {
    writeFileSync(join(directory, name), change(unitText(name)).replaceAll('/usr/bin/node', process.execPath))
    if (!name.endsWith('.service')) continue
    mkdirSync(join(directory, `${name}.d`))
    writeFileSync(join(directory, `${name}.d/secrets.conf`), unitText('oa-audience-secrets.conf'))
  }
  const embedded = unitText('oa-audience-backup-embedded.conf')
  writeFileSync(join(directory, 'oa-audience-backup.service.d/embedded.conf'), embedded)
  const paths = names.map((name) => join(directory, name))
  const { stderr } = spawnSync('systemd-analyze', ['verify', '--man=no', ...paths], {
    encoding: 'utf8',
    env: { PATH: process.env.PATH, SYSTEMD_UNIT_PATH: `${directory}:` },
  })
  return stderr
    .split('\n')
    .filter((line) => line.includes('oa-audience'))
    .join('\n')
}

describe.skipIf(!hasAnalyze)('the units', () => {
  it('are valid for systemd-analyze verify, which finds a misspelt setting', () => {
    expect(verify()).toBe('')
    expect(verify((text) => text.replace('KillMode=', 'KillMod='))).toContain('KillMod')
  })

  it.each(SERVICES)('%s has an exposure of at most 3.0', (name) => {
    const args = ['security', '--offline=true', '--threshold=30', join(CHECKOUT, 'deploy', name)]
    const { status, stdout } = spawnSync('systemd-analyze', args, { encoding: 'utf8' })
    expect(stdout).toContain('Overall exposure level')
    expect(status).toBe(0)
  })
})

/** `nobody`, which exists on every machine: initdb looks up the name of its user. */
const USER = 65_534

describe.skipIf(!canSwitchUser)('the command lines of oa-audience.service', () => {
  it('start, become ready, accept a delivery and exit with 0 on SIGTERM, as a user without capabilities', async () => {
    const { root, port } = await layOut()
    const startedMs = performance.now()
    const service = start(root, 'ExecStart')
    const exited = new Promise((resolve) => service.once('exit', (...how) => resolve(how)))
    expect(run(root, healthCheck(root, service.pid))).toMatchObject({
      status: 0,
      stdout: expect.stringContaining('ok'),
    })

    const channelSecret = '8c570fa6dd201bb328f1c1eac23a96d8'
    const program = `${process.execPath} ${root}/opt/oa-audience/current/dist/src/cli/main.js`
    const setUp = run(
      root,
      `${program} setup --organization-name Agency --name Coffee --channel-id 2000000001 --channel-secret ${channelSecret} --unproven`,
    )
    expect(setUp).toMatchObject({ status: 0 })
    const account = { accountId: 1n, channelSecret, botUserId: randomUserId() }
    const url = `http://127.0.0.1:${port}`
    const response = await sendDelivery(url, account, [lineEvent('follow', randomUserId())])
    expect(await response.json()).toEqual({ accepted: 1, duplicates: 0 })
    console.log(`first accepted delivery ${Math.round(performance.now() - startedMs)} ms after ExecStart`)

    const stoppedMs = performance.now()
    service.kill('SIGTERM')
    expect(await exited).toEqual([0, null])
    const [limit = '0'] = setting(root, 'TimeoutStopSec')
    expect(performance.now() - stoppedMs).toBeLessThan(Number(limit) * 1_000)
  })

  it('do not wait for a service that has exited', async () => {
    const { root } = await layOut()
    const { pid } = spawnSync('true')
    expect(run(root, healthCheck(root, pid))).toMatchObject({
      status: 1,
      stdout: expect.stringContaining('does not respond'),
    })
  })
})

/** Creates the directories of docs/installation.md below `root`. The release is this checkout, which `invocation` mounts. */
async function layOut(): Promise<{ root: string; port: number }> {
  const root = temporaryDirectory()
  chmodSync(root, 0o755)
  for (const path of ['opt/oa-audience/release', 'etc/oa-audience', 'var/lib/oa-audience', 'credentials']) {
    mkdirSync(join(root, path), { recursive: true })
  }
  for (const path of ['var/lib/oa-audience', 'credentials']) chownSync(join(root, path), USER, USER)
  symlinkSync('release', join(root, 'opt/oa-audience/current'))
  const port = await freePort()
  writeFileSync(
    join(root, 'etc/oa-audience/env'),
    `PORT=${port}\nSECRETS_KEYS_FILE=${root}/credentials/SECRETS_KEYS\n`,
  )
  writeFileSync(join(root, 'credentials/SECRETS_KEYS'), `2026a:${Buffer.alloc(32).toString('base64')}\n`)
  return { root, port }
}

/** The values of a setting of the unit, with paths below `root`. */
function setting(root: string, name: string): string[] {
  return unitText('oa-audience.service')
    .split('\n')
    .filter((line) => line.startsWith(`${name}=`))
    .map((line) => line.slice(name.length + 1).replaceAll('/usr/bin/node', process.execPath))
    .map((value) => value.replace(/\/(opt|etc|var\/lib)\/oa-audience/g, (path) => root + path))
}

/** The command line of ExecStartPost as systemd starts it. */
function healthCheck(root: string, mainPid: number | undefined): string {
  return `env MAINPID=${mainPid} ${setting(root, 'ExecStartPost')[0]?.replaceAll('$$', '$')}`
}

/**
 * Does what systemd does before it runs a command line of the unit: sets variables, working directory and user, drops capabilities, and
 * mounts the release read-only.
 */
function invocation(root: string, commandLine: string) {
  const variables = setting(root, 'EnvironmentFile').flatMap((file) =>
    readFileSync(file, 'utf8').trim().split('\n'),
  )
  const env = Object.fromEntries(
    [...setting(root, 'Environment'), ...variables].map((pair) => [
      pair.slice(0, pair.indexOf('=')),
      pair.slice(pair.indexOf('=') + 1),
    ]),
  )
  const state = `${root}/var/lib/oa-audience`
  const script = [
    `mount --bind ${CHECKOUT} ${root}/opt/oa-audience/release`,
    `mount -o remount,bind,ro ${root}/opt/oa-audience/release`,
    `cd ${state}`,
    `exec setpriv --reuid=${USER} --regid=${USER} --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all ${commandLine}`,
  ].join(' && ')
  return {
    args: ['--mount', 'sh', '-c', script],
    env: { PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin', ...env },
  }
}

function run(root: string, commandLine: string) {
  const { args, env } = invocation(root, commandLine)
  const { status, stdout, stderr } = spawnSync('unshare', args, { env, encoding: 'utf8', timeout: 120_000 })
  return { status, stdout, stderr }
}

function start(root: string, name: string): ChildProcess {
  const { args, env } = invocation(root, setting(root, name)[0] ?? '')
  const child = spawn('unshare', args, { env, stdio: ['ignore', 'ignore', 'inherit'] })
  onTestFinished(() => void child.kill('SIGKILL'))
  return child
}
