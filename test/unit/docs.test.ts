/** The documents list every error, answer and command correctly. `npm run docs` runs the commands that they show. */
import { spawnSync } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'
import Value from 'typebox/value'
import { describe, expect, it } from 'vitest'
import { VerificationSchema } from '../../src/accounts/verification.ts'
import { MemberSchema } from '../../src/audience/member.ts'
import { ERRORS } from '../../src/errors.ts'
import { ErrorEnvelopeSchema } from '../../src/http/error-envelope.ts'

const read = (path: string) => readFileSync(new URL(`../../${path}`, import.meta.url), 'utf8')

it('docs/errors.md has one row for each error, with its status and message', () => {
  const text = read('docs/errors.md')
  const rows = [...text.matchAll(/^\| (\d{3}) +\| ([^|]+?) +\| [^|]+ \|$/gm)].map(
    ([, status, message]) => `${status} ${message}`,
  )
  const expected = new Set(Object.values(ERRORS).map(([status, message]) => `${status} ${message}`))
  expect(rows.toSorted()).toEqual([...expected].sort())
})

it('docs/errors.md has the more specific messages of errors', () => {
  const text = read('docs/errors.md')
  const source = new URL('../../src', import.meta.url)
  const files = readdirSync(source, { recursive: true, encoding: 'utf8' }).filter((name) =>
    name.endsWith('.ts'),
  )
  const messages = files.flatMap((file) =>
    [...read(`src/${file}`).matchAll(/new AppError\(\s*'\w+',\s*\{\s*message:\s*(['`])(.*?)\1/gs)].map(
      ([, , message = '']) =>
        message.replace(/\$\{counted\(.*?'(\w+)'\)\}/g, 'N $1s').replace(/\$\{.*?\}/g, 'N'),
    ),
  )
  expect(messages.length).toBeGreaterThan(20)
  expect(messages.filter((message) => !text.includes(message))).toEqual([])
})

it('docs/dependencies.md names each package that is shipped', () => {
  const text = read('docs/dependencies.md')
  const { dependencies } = JSON.parse(read('package.json')) as { dependencies: Record<string, string> }
  const unnamed = Object.keys(dependencies).filter((name) => !text.includes(name.split('/').at(-1) as string))
  expect(unnamed).toEqual([])
})

it.each([
  ['docs/errors.md', [ErrorEnvelopeSchema]],
  ['docs/api.md', [MemberSchema, VerificationSchema]],
])('%s shows answers that match the schemas of the service', (path, schemas) => {
  const shown = [...read(path).matchAll(/^```json\n([\s\S]*?)^```$/gm)].map(([, text]) =>
    JSON.parse(text as string),
  )
  expect(shown).toHaveLength(schemas.length)
  for (const [i, schema] of schemas.entries()) expect([...Value.Errors(schema, shown[i])]).toEqual([])
})

it('overrides only packages for development, because npm ignores the overrides of an installed package', () => {
  const { overrides } = JSON.parse(read('package.json')) as { overrides: Record<string, string> }
  const { packages } = JSON.parse(read('package-lock.json')) as {
    packages: Record<string, { dev?: boolean; devOptional?: boolean; optional?: boolean }>
  }
  for (const name of Object.keys(overrides))
    expect(packages[`node_modules/${name}`], name).toMatchObject({ dev: true })
})

describe('every command that the documents name', () => {
  const files = ['README.md', 'SECURITY.md', 'SUPPORT.md', 'CONTRIBUTING.md', 'bench/README.md']
  for (const folder of ['docs', 'docs/operate']) {
    for (const name of readdirSync(new URL(`../../${folder}`, import.meta.url)))
      if (name.endsWith('.md')) files.push(`${folder}/${name}`)
  }
  // Hints of the service and of the console's pages.
  files.push('src/watch/languages.ts', 'src/endpoints/endpoint-health.ts')
  files.push('src/watch/notifications/channels.ts', 'src/watch/notifications/text.ts')
  for (const language of ['en', 'ja', 'th', 'zh']) files.push(`web/texts/${language}.json`)
  const mentions = files.flatMap((file) =>
    [...read(file).matchAll(/oa-audience (?!console['"])([a-z]+)(?: ([a-z][a-z-]+))?/g)].map(
      ([mention, group = '', command]) => ({ where: `${file}: ${mention}`, group, command }),
    ),
  )

  it('is a command of the command line', () => {
    const commands = commandsOf(['', ...mentions.map(({ group }) => group)])
    for (const { where, group, command } of mentions) {
      expect(commands.get(''), where).toContain(group)
      const subcommands = commands.get(group)?.filter((name) => name !== 'help') ?? []
      if (command !== undefined && subcommands.length > 0) expect(subcommands, where).toContain(command)
    }
  })

  it('is one of the npm scripts', () => {
    const { scripts } = JSON.parse(read('package.json')) as { scripts: Record<string, string> }
    for (const file of files) {
      for (const [mention, name = ''] of read(file).matchAll(/npm run ([a-z:]+)/g)) {
        expect(Object.keys(scripts), `${file}: ${mention}`).toContain(name)
      }
    }
  })
})

/** The commands that the help of each group lists. One process prints them all: one for each group takes 8 s. */
function commandsOf(groups: string[]): Map<string, string[]> {
  const unique = [...new Set(groups)]
  const script = `for (const group of ${JSON.stringify(unique)}) {
    process.argv = [process.argv[0], 'oa-audience', group, '--help'].filter((part) => part !== '')
    await import('./dist/src/cli/main.js?' + group)
    console.log('\f')
  }`
  const { stdout } = spawnSync(process.execPath, ['--input-type=module'], { input: script, encoding: 'utf8' })
  const texts = stdout.split('\f')
  return new Map(
    unique.map((group, i) => {
      const listed = texts[i]?.matchAll(/^ {2}([a-z][a-z-]+)/gm) ?? []
      return [group, [...listed].map(([, name]) => name as string)]
    }),
  )
}
