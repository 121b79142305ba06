/**
 * Runs every fenced `sh` block of README, docs, CONTRIBUTING, SECURITY, SUPPORT and bench/README as a reader would, in order, on one
 * service with its own data. Exits with 1 if a command fails, or if its output lacks what the next sentence or the `text` block behind it
 * shows. Figures, times, random texts and spaces may differ, and `…` stands for any text.
 */
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

const ROOT = new URL('..', import.meta.url).pathname
/** In the order of their list. */
const OPERATE = [
  ...readFileSync(join(ROOT, 'docs/operate/README.md'), 'utf8').matchAll(/\]\((\w+\.md)\)/g),
].map(([, name]) => `docs/operate/${name}`)
/** In this order, because the others use what the README sets up. */
const FILES = [
  'README.md',
  ...readdirSync(join(ROOT, 'docs')).map((name) => `docs/${name}`),
  ...OPERATE,
  'CONTRIBUTING.md',
  'SECURITY.md',
  'SUPPORT.md',
  'bench/README.md',
]
/** CI runs these by itself, so only its script is checked: they install packages or take minutes. */
const RUN_BY_CI = ['npm ci && npm run demo', 'npm ci && npm run check']
const START_TIMEOUT_MS = 60_000

const data = mkdtempSync(join(tmpdir(), 'oa-audience-docs-'))
// Not the rest of the environment: a DATABASE_URL in it could name a real database.
const { PATH, HOME } = process.env
const env = {
  PATH,
  HOME,
  DATA_DIR: join(data, 'data'),
  BACKUP: join(data, 'backup'),
  FLEET: join(data, 'fleet.csv'),
  // dist/ is built. `npm start` would replace its files while others use them.
  npm_config_ignore_scripts: 'true',
}
let service = null
let hasFailed = false
// The documents' accounts do not exist on LINE, and a machine without internet access must run the documents, too.
const platform = await startPlatform()

for (const file of FILES.filter((name) => name.endsWith('.md'))) {
  const text = readFileSync(join(ROOT, file), 'utf8')
  for (const [whole, isStopped, block] of text.matchAll(
    /^(<!-- the service is stopped -->\n)?```sh\n([\s\S]*?)^```$/gm,
  )) {
    const behind = text.slice(text.indexOf(whole) + whole.length)
    console.log(`\n-- ${file}\n${block.trim()}`)
    if (isStopped) await stop()
    const [, said, shown] =
      /^\s*(?:The \w+ (?:responds with|prints) `([^`]+)`|```text\n([\s\S]*?)\n```)/.exec(behind) ?? []
    await run(block.trim(), said ?? shown)
    if (hasFailed) break
  }
  if (hasFailed) break
}
await stop()
platform.kill('SIGTERM')
rmSync(data, { recursive: true, force: true })
process.exitCode = hasFailed ? 1 : 0

/** It knows the account that the README sets up, and its webhook URL points at the service. */
async function startPlatform() {
  const script = `
    import { simulatePlatform } from './dist/tools/simulator/platform.js'
    import { randomAccount } from './dist/tools/simulator/state.js'
    const credentials = { channelId: '2000000001', channelSecret: '8c570fa6dd201bb328f1c1eac23a96d8' }
    const account = { ...randomAccount('Corner Coffee'), ...credentials }
    const platform = await simulatePlatform(account)
    // The secret that docs/operate/secrets.md stores as the reissued one.
    platform.addAccount({ ...account, channelSecret: '1f0c5ab2f8d9a7d0a7b3a0d0e5f6c7b8' })
    platform.settings.webhook = { endpoint: 'http://127.0.0.1:3000/api/line/1', active: true }
    console.log(platform.url)`
  const args = ['--input-type=module', '--eval', script]
  const child = spawn(process.execPath, args, { cwd: ROOT, stdio: ['ignore', 'pipe', 'inherit'] })
  const [url] = await once(child.stdout, 'data')
  env.LINE_API_URL = String(url).trim()
  return child
}

async function run(block, answer) {
  if (RUN_BY_CI.includes(block)) {
    const ci = readFileSync(join(ROOT, '.ci/run'), 'utf8')
    const missing = block.split(' && ').filter((command) => !ci.includes(`\n${command}`))
    if (missing.length > 0) fail(`.ci/run does not run ${missing.join(' or ')}`)
  } else if (/^([A-Z_]+=\S+ )*npm start$/.test(block)) {
    await stop()
    await start(block)
  } else {
    runInShell(block, answer)
  }
}

/** Runs the block in one shell. Later blocks see the variables that it sets and the credentials that it prints. */
function runInShell(block, answer) {
  const script = `set -euo pipefail; exec 2>&1
    curl() { command curl --fail-with-body "$@"; }
    ${block}
    printf '\\n%s\\n' --variables--; env -0`
  const exported = `set -a; ${script}`
  const { status, stdout } = spawnSync('bash', ['-c', exported], {
    cwd: ROOT,
    env,
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const [output, variables = ''] = stdout.split('\n--variables--\n')
  console.log(output.trim().slice(0, 2_000))
  if (status !== 0) fail(`ended with ${status}`)
  if (answer !== undefined && !shows(output, answer)) fail(`did not print ${answer}`)
  for (const line of variables.split('\0')) {
    const [, name, value] = /^([A-Z_]+)=([\s\S]*)$/.exec(line) ?? []
    if (name !== undefined) env[name] = value
  }
  for (const [name, word] of [
    ['CLIENT_ID', 'clientId|x-client-id:'],
    ['CLIENT_SECRET', 'clientSecret|x-client-secret:'],
    ['API_KEY', 'key|x-api-key:'],
  ]) {
    env[name] = new RegExp(`^ *(?:${word}) +(\\S+)$`, 'm').exec(output)?.[1] ?? env[name]
  }
}

/** Whether the output has the parts between `…`, in this order. */
function shows(output, expected) {
  const rest = expected.split('…').reduce((left, part) => {
    const at = left?.indexOf(generalize(part).trim()) ?? -1
    return at < 0 ? null : left.slice(at + generalize(part).trim().length)
  }, generalize(output))
  return rest !== null
}

function generalize(text) {
  return text
    .replace(/\d{4}-\d\d-\d\dT[\d:.]+Z/g, 'TIME')
    .replace(/\b(?=\w*\d)[\w-]{32,}\b/g, 'TOKEN')
    .replace(/\b\d[\d,.]*( (ms|s|min|h|days?)\b)?/g, 'N')
    .replace(/\s+/g, ' ')
}

async function start(command) {
  if (await isWell()) {
    fail('something listens on port 3000 already')
    return
  }
  service = spawn('bash', ['-c', command], { cwd: ROOT, env, stdio: 'ignore', detached: true })
  for (const startedAt = Date.now(); Date.now() < startedAt + START_TIMEOUT_MS; await pause()) {
    if (await isWell()) return
  }
  fail('the service does not answer')
}

function isWell() {
  return fetch('http://127.0.0.1:3000/api/health').then(
    ({ ok }) => ok,
    () => false,
  )
}

async function stop() {
  if (service === null) return
  process.kill(-service.pid, 'SIGTERM')
  service = null
  // npm exits before the service, and the service exits when its database has stopped.
  while (existsSync(join(env.DATA_DIR, 'postgres/postmaster.pid'))) await pause()
}

function pause() {
  return new Promise((resolve) => setTimeout(resolve, 200))
}

function fail(reason) {
  console.error(`!! ${reason}`)
  hasFailed = true
}
