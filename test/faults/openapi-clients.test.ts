/** A client that oazapfts makes from the OpenAPI document compiles, and calls the service. http/openapi.test.ts tests examples/client.ts. */
import { execFile } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { promisify } from 'node:util'
import { afterAll, expect, it } from 'vitest'
import { randomUserId, textMessage } from '../../tools/simulator/events.ts'
import { OPENAPI_FILE } from '../support/openapi.ts'
import { setUpService } from '../support/service.ts'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const TIMEOUT_MS = 120_000
const run = promisify(execFile)
const node = (args: string[]) => run(process.execPath, args, { cwd: ROOT, timeout: TIMEOUT_MS })

// In the checkout, where clients find their packages.
const directory = mkdtempSync(join(ROOT, 'node_modules/.generated-'))
afterAll(() => rmSync(directory, { recursive: true }))
const file = (name: string) => join(directory, name)

/** What a program does with the client. A status narrows the type of the body. */
const PROGRAM = `import { defaults, listAudience, updateMember, type Member } from './client.ts'

export async function demonstrate(baseUrl: string, headers: Record<string, string>) {
  Object.assign(defaults, { baseUrl, headers })
  const listed = await listAudience({ limit: 1, relationship: 'unknown' })
  if (listed.status !== 200 || listed.data === null) throw new Error('not listed')
  const [first] = listed.data.data
  if (first === undefined || 'deletedAt' in first) throw new Error('no member')
  const updated = await updateMember(first.id, { tags: ['vip'] })
  if (updated.status !== 200) throw new Error('not updated')
  const member: Member = updated.data
  const missing = await updateMember('1', { tags: [] })
  if (missing.status !== 404) throw new Error('found')
  const message: string = missing.data.message
  return { tags: member.tags, version: updated.headers.get('etag'), message }
}
`

/** Generated code does not compile with the two strictest options. */
const TSCONFIG = {
  extends: join(ROOT, 'tsconfig.json'),
  compilerOptions: { noEmit: true, exactOptionalPropertyTypes: false, verbatimModuleSyntax: false },
  include: ['*.ts'],
}

it('makes oazapfts generate a client that compiles and calls the service', {
  timeout: TIMEOUT_MS,
}, async () => {
  const { service, tenant } = await setUpService()
  await node(['node_modules/oazapfts/dist/cli.js', fileURLToPath(OPENAPI_FILE), file('client.ts')])
  writeFileSync(file('program.ts'), PROGRAM)
  writeFileSync(file('package.json'), '{"type":"module"}')
  writeFileSync(file('tsconfig.json'), JSON.stringify(TSCONFIG))
  await node(['node_modules/typescript/bin/tsc', '--project', directory]).catch(({ stdout }) => {
    throw new Error(stdout)
  })
  await service.deliver(tenant, [textMessage(randomUserId(), 'hello')])
  const { demonstrate } = await import(pathToFileURL(file('program.ts')).href)
  expect(await demonstrate(service.url, tenant.headers)).toEqual({
    ...{ tags: ['vip'], version: '"2"', message: 'No such member in this scope' },
  })
})
