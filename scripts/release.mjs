/**
 * Makes the files of a release in release/: the tarball, its bill of materials, and SHA256SUMS. HEAD is cloned, installed, built and packed
 * twice, under different conditions, and the two must be equal byte by byte. Needs no network if npm's cache has the locked packages.
 */
import { execFile } from 'node:child_process'
import { createHash } from 'node:crypto'
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { pathOf } from './sources.mjs'

/** Permits use, change and redistribution without the source. docs/dependencies.md says what happens with another license. */
const LICENSES = [
  'MIT',
  'MIT-0',
  'ISC',
  '0BSD',
  'BSD-2-Clause',
  'BSD-3-Clause',
  'Apache-2.0',
  'BlueOak-1.0.0',
]
/** What a build could pick up by mistake: paths of another length, times of another zone, an order of another language. */
const CONDITIONS = [
  { directory: 'a', TZ: 'UTC', LC_ALL: 'C' },
  { directory: 'another/place', TZ: 'Asia/Tokyo', LC_ALL: 'C.UTF-8' },
]

const execute = promisify(execFile)
const sha256 = (content) => createHash('sha256').update(content).digest('hex')
const commit = (await run('git', ['rev-parse', 'HEAD'])).trim()
const temporary = mkdtempSync(join(tmpdir(), 'oa-audience-release-'))
process.on('exit', () => rmSync(temporary, { recursive: true, force: true }))
// npm packs the modes of files as they are.
process.umask(0o022)

if ((await run('git', ['status', '--porcelain'])) !== '')
  console.error('oa-audience: changes that are not committed are not in the release.')
const [first, second] = await Promise.all(CONDITIONS.map(build))
for (const name of Object.keys(first)) {
  if (Buffer.compare(first[name], second[name]) === 0) continue
  for (const [i, files] of [first, second].entries()) writeFileSync(`${tmpdir()}/${i}-${name}`, files[name])
  throw new Error(`two builds of ${name} differ: compare ${tmpdir()}/0-${name} and ${tmpdir()}/1-${name}`)
}

const release = pathOf('release')
rmSync(release, { recursive: true, force: true })
mkdirSync(release)
const sums = Object.entries(first).map(([name, content]) => {
  writeFileSync(join(release, name), content)
  return `${sha256(content)}  ${name}\n`
})
writeFileSync(join(release, 'SHA256SUMS'), sums.join(''))
console.log(
  `Two builds of ${commit} by Node ${process.version} are equal. release/SHA256SUMS:\n${sums.join('')}`,
)

/** The files of a release by name, from a clone of its own. */
async function build({ directory, ...conditions }) {
  const clone = join(temporary, directory, 'oa-audience')
  await run('git', ['clone', '--quiet', pathOf(''), clone])
  await run('git', ['checkout', '--quiet', commit], clone)
  const npm = (...args) => run('npm', args, clone, conditions)
  await npm('ci', '--ignore-scripts', '--prefer-offline', '--no-audit', '--no-fund')
  const [{ filename }] = Object.values(JSON.parse(await npm('pack', '--json')))
  const tarball = readFileSync(join(clone, filename))
  const bill = JSON.parse(
    await npm('sbom', '--package-lock-only', '--workspaces=false', '--sbom-format=cyclonedx'),
  )
  const time = (await run('git', ['log', '-1', '--format=%cI'], clone)).trim()
  const shipped = describe(bill, { tarball, time, bundled: bundledIn(clone) })
  return { [filename]: tarball, [filename.replace('.tgz', '.cdx.json')]: Buffer.from(shipped) }
}

/** `name@version` of the packages that the build has copied into dist/. */
function bundledIn(clone) {
  const files = readdirSync(join(clone, 'dist'), { recursive: true }).filter((name) =>
    name.endsWith('licenses.txt'),
  )
  const texts = files.map((name) => readFileSync(join(clone, 'dist', name), 'utf8'))
  return new Set(texts.flatMap((text) => [...text.matchAll(/^# (\S+@\S+)$/gm)].map(([, name]) => name)))
}

/** The bill of what the tarball contains or installs, with nothing random in it. */
function describe(bill, { tarball, time, bundled }) {
  const isShipped = ({ 'bom-ref': name, properties }) =>
    bundled.has(name) || !properties.some((each) => each.name === 'cdx:npm:package:development')
  const components = bill.components.filter(isShipped)
  const names = new Set([bill.metadata.component['bom-ref'], ...components.map((each) => each['bom-ref'])])
  const absent = [...bundled].filter((name) => !names.has(name))
  if (absent.length > 0) throw new Error(`package-lock.json does not have ${absent.join(', ')}`)
  const refused = components.filter(({ licenses = [] }) => !licenses.some(isAccepted))
  if (refused.length > 0)
    throw new Error(`see docs/dependencies.md for the license of ${refused.map((each) => each['bom-ref'])}`)
  const hash = sha256(tarball)
  const content = {
    ...bill,
    serialNumber: `urn:uuid:${hash.replace(/^(.{8})(.{4}).(.{3}).(.{3})(.{12}).*/, '$1-$2-8$3-8$4-$5')}`,
    metadata: {
      ...bill.metadata,
      timestamp: time,
      component: {
        ...bill.metadata.component,
        type: 'application',
        hashes: [{ alg: 'SHA-256', content: hash }],
      },
    },
    components,
    dependencies: bill.dependencies
      .filter(({ ref }) => names.has(ref))
      .map(({ ref, dependsOn }) => ({ ref, dependsOn: dependsOn.filter((name) => names.has(name)) })),
  }
  return `${JSON.stringify(content, null, 2)}\n`
}

function isAccepted({ license, expression = license?.id ?? '' }) {
  return expression
    .replace(/[()]/g, '')
    .split(' OR ')
    .some((one) => LICENSES.includes(one))
}

/** Without the settings that `npm run` passes on, except where packages come from. */
async function run(program, args, cwd = pathOf(''), conditions = {}) {
  const inherited = Object.entries(process.env).filter(
    ([name]) => !/^npm_(?!config_(cache|registry)$)/i.test(name),
  )
  const env = { ...Object.fromEntries(inherited), ...conditions }
  const { stdout } = await execute(program, args, { cwd, env, maxBuffer: 2 ** 26 })
  return stdout
}
