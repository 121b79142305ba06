/** `oa-audience audience export` and `import`: whole audiences as files. */
import {
  chmodSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { PassThrough, Readable } from 'node:stream'
import { parse } from 'csv-parse/sync'
import { expect, it } from 'vitest'
import { run } from '../../src/cli/run.ts'
import { runCommand } from '../support/command.ts'
import { type Tenant, urlOf } from '../support/database.ts'
import { load, tenantWithMembers } from '../support/load.ts'
import { environment, temporaryDirectory, writeTemporaryFile } from '../support/process.ts'
import { setUpService } from '../support/service.ts'

const { database, env, service } = await setUpService()

const runAudience = (command: 'export' | 'import', tenant: Tenant, ...args: string[]) =>
  runCommand(['audience', command, '--account', String(tenant.accountId), ...args], env)

it('audience export writes every member to the file, and reports progress', async () => {
  const tenant = await tenantWithMembers(database, 1_001)
  const file = join(temporaryDirectory(), 'audience.csv')
  const exported = await runAudience('export', tenant, '--format', 'csv', '--output', file, '--json')
  expect(JSON.parse(exported.stdout)).toEqual({ members: 1_001 })
  expect(exported.stderr).toContain('members 1,001')
  // Without the mark, Excel would read names in the encoding of its machine.
  expect(readFileSync(file).subarray(0, 3).toString('hex')).toBe('efbbbf')
  const rows: Array<{ userId: string }> = parse(readFileSync(file), { columns: true, bom: true })
  expect(rows.map(({ userId }) => userId)).toEqual(Array.from({ length: 1_001 }, (_, i) => `U${i + 1}`))
})

it('audience export writes the members that match a filter to standard output', async () => {
  const tenant = await tenantWithMembers(database, 100, { display_name: `'name ' || i` })
  const { stdout } = await runAudience('export', tenant, '--q', 'name 77')
  const lines = stdout.trimEnd().split('\n')
  expect(lines.map((line) => JSON.parse(line).userId)).toEqual(['U77'])
})

it('audience export lets only its user read the file, also when a readable file has the name already', async () => {
  const tenant = await tenantWithMembers(database, 1)
  const directory = temporaryDirectory()
  const [created, replaced] = [join(directory, 'created.ndjson'), join(directory, 'replaced.ndjson')]
  writeFileSync(replaced, 'an earlier export')
  chmodSync(replaced, 0o644)
  for (const file of [created, replaced]) {
    expect(await runAudience('export', tenant, '--output', file)).toMatchObject({ status: 0 })
    expect(statSync(file).mode & 0o777).toBe(0o600)
    expect(readFileSync(file, 'utf8')).toContain('"userId":"U1"')
  }
  expect(readdirSync(directory).toSorted()).toEqual(['created.ndjson', 'replaced.ndjson'])
})

it('audience export writes through a symbolic link and into a device', async () => {
  const tenant = await tenantWithMembers(database, 1)
  const directory = temporaryDirectory()
  const [file, link] = [join(directory, 'audience.ndjson'), join(directory, 'link')]
  writeFileSync(file, 'an earlier export')
  symlinkSync(file, link)
  for (const output of [link, '/dev/null'])
    expect(await runAudience('export', tenant, '--output', output)).toMatchObject({ status: 0 })
  expect(readlinkSync(link)).toBe(file)
  expect(readFileSync(file, 'utf8')).toContain('"userId":"U1"')
  expect(statSync('/dev/null').isCharacterDevice()).toBe(true)
})

it('audience export keeps the earlier file when it cannot finish', async () => {
  const directory = temporaryDirectory()
  const file = join(directory, 'audience.ndjson')
  writeFileSync(file, 'an earlier export')
  const other = await setUpService()
  await load(other.database, 'drop table tracked_activity cascade')
  const failed = await runCommand(
    ['audience', 'export', '--account', String(other.tenant.accountId), '--output', file],
    { DATABASE_URL: urlOf(other.connection) },
  )
  expect(failed.status).toBe(1)
  expect(readFileSync(file, 'utf8')).toBe('an earlier export')
  expect(readdirSync(directory)).toEqual(['audience.ndjson'])
})

it.each([['/nowhere/at/all', 'ENOENT'], ...(process.platform === 'linux' ? [['/dev/full', 'ENOSPC']] : [])])(
  'audience export fails with the reason when it cannot write to %s',
  async (output, code) => {
    const tenant = await tenantWithMembers(database, 3)
    expect(await runAudience('export', tenant, '--output', output)).toMatchObject({
      status: 1,
      stderr: expect.stringMatching(`${output} cannot be written: [a-z ]+ \\(${code}\\)`),
    })
  },
)

// 100 members × 1.4 KB = 140 KB: more than the 64 KiB that are read from a file at a time.
it.each(['ndjson', 'csv'])(
  'audience import changes nothing when it reads an export in %s',
  async (format) => {
    const tenant = await tenantWithMembers(database, 100, {
      external_id: `'-' || i`,
      attributes: `jsonb_build_object('note', 'a "b"', 'pad', repeat('x', 1000))`,
    })
    const members = await service.members(tenant)
    const file = join(temporaryDirectory(), `audience.${format}`)
    await runAudience('export', tenant, '--format', format, '--output', file)
    const { stdout, stderr } = await runAudience('import', tenant, file, '--json')
    expect(stderr).not.toContain(': line ')
    expect(JSON.parse(stdout)).toEqual({ changed: 0, replaced: 0, unchanged: 100, refused: 0 })
    expect(await service.members(tenant)).toEqual(members)
  },
)

it('audience import sets the fields of each line, and reports the lines that it cannot use', async () => {
  const tenant = await tenantWithMembers(database, 4)
  const [, second, third] = await service.members(tenant)
  const lines = [
    '{"userId":"U1","externalId":"c-1","tags":["vip"],"attributes":{"cups":3}}',
    `{"id":"${second?.id}","tags":null}`,
    '',
    '{"userId":"U404","tags":["x"]}',
    '{"userId":"U3","externalId":"c-1"}',
    '{"userId":"U3","tags":"x"}',
    '{"tags":["x"]}',
    'no json',
    '7',
    '{"userId":"a\\u0000b","tags":[]}',
    '{"id":9007199254740993,"tags":["wrong"]}',
    `{"id":${third?.id},"tags":["numbered"]}`,
  ]
  const file = writeTemporaryFile('crm.ndjson', lines.join('\n'))
  const { stdout, stderr, status } = await runAudience('import', tenant, file, '--json')
  expect(status).toBe(1)
  expect(JSON.parse(stdout)).toEqual({ changed: 2, replaced: 0, unchanged: 1, refused: 8 })
  for (const line of [4, 5, 6, 7, 8, 9, 10, 11]) expect(stderr).toContain(`line ${line}: `)
  expect(stderr).toMatch(/line 11: .*write it as text/)
  expect(stderr).not.toMatch(/^ +at /m)
  expect(await service.members(tenant)).toMatchObject([
    { externalId: 'c-1', tags: ['vip'], attributes: { cups: 3 } },
    { tags: [] },
    { tags: ['numbered'] },
    { tags: [], externalId: null },
  ])
})

it('audience import says that a line replaces all tags and attributes, and counts the members that lost something', async () => {
  const tenant = await tenantWithMembers(database, 6, {
    tags: `'{a,b}'::text[]`,
    attributes: `'{"cups":3}'::jsonb`,
    external_id: `case when i = 6 then null else 'E' || i end`,
  })
  const lines = [
    '{"userId":"U1","tags":["a"]}',
    '{"userId":"U2","attributes":{"cups":4}}',
    '{"userId":"U3","externalId":"F"}',
    '{"userId":"U4","externalId":null}',
    '{"userId":"U5","tags":["b","c","a"],"attributes":{"cups":3,"size":"L"}}',
    '{"userId":"U6","externalId":"G"}',
    '{"userId":"U6","tags":["a","b"]}',
  ]
  const file = writeTemporaryFile('members.ndjson', lines.join('\n'))
  const { stdout, stderr } = await runAudience('import', tenant, file, '--json')
  expect(stderr).toMatch(/^Each line replaces all tags and attributes of its member\./)
  expect(JSON.parse(stdout)).toEqual({ changed: 7, replaced: 4, unchanged: 0, refused: 0 })
})

it('audience import refuses a line whose id belongs to another person than its userId', async () => {
  const tenant = await tenantWithMembers(database, 2)
  const [, second] = await service.members(tenant)
  const file = writeTemporaryFile('ids.csv', `id,userId,tags\n${second?.id},U1,"[""wrong""]"\n`)
  const { stdout, stderr } = await runAudience('import', tenant, file, '--json')
  expect(JSON.parse(stdout)).toEqual({ changed: 0, replaced: 0, unchanged: 0, refused: 1 })
  expect(stderr).toContain('its id is not')
  for (const { tags } of await service.members(tenant)) expect(tags).toEqual([])
})

it.each([
  ['has a header alone', 'a.csv', 'userId,tags\n', 'a.csv has no entry'],
  ['is not in UTF-8', 'a.ndjson', Buffer.from('{"tags":["caf\xe9"]}', 'latin1'), 'line 1 is not in UTF-8'],
  ['has only a byte order mark and blank lines', 'a.ndjson', '\ufeff\n \n', 'a.ndjson has no entry'],
])('audience import fails with an empty tally when the file %s (%s)', async (_, name, content, complaint) => {
  const tenant = await tenantWithMembers(database, 1)
  const result = await runAudience('import', tenant, writeTemporaryFile(name, content), '--json')
  expect(result).toMatchObject({ status: 1, stderr: expect.stringContaining(complaint) })
  expect(result.stderr).not.toMatch(/^ +at /m)
  expect(JSON.parse(result.stdout)).toEqual({ changed: 0, replaced: 0, unchanged: 0, refused: 0 })
})

it('audience import refuses lines that are too long or nested too deeply, and applies all others', async () => {
  const tenant = await tenantWithMembers(database, 3)
  const nested = '['.repeat(200_000) + ']'.repeat(200_000)
  const lines = [
    '{"userId":"U1","tags":["a"]}',
    nested,
    `{"userId":"U2","tags":${nested}}`,
    `{"userId":"U2","attributes":{"a":${nested}}}`,
    `{"userId":"U2","tags":["${'x'.repeat(2 ** 20)}"]}`,
    '{"userId":"U3","tags":["a"]}',
  ]
  const file = writeTemporaryFile('members.ndjson', lines.join('\n'))
  const { stdout, stderr, status } = await runAudience('import', tenant, file, '--json')
  const refused = [...stderr.matchAll(/^oa-audience: line (\d): /gm)].map(([, line]) => line)
  expect(refused).toEqual(['2', '3', '4', '5'])
  expect(stderr).toContain('line 5: the line is longer than 1048576 bytes')
  expect([status, JSON.parse(stdout)]).toEqual([1, { changed: 2, replaced: 0, unchanged: 0, refused: 4 }])
})

it('audience import fails with the reason when the file does not exist', async () => {
  const tenant = await tenantWithMembers(database, 1)
  const path = join(temporaryDirectory(), 'members.csv')
  expect(await runAudience('import', tenant, path)).toMatchObject({
    status: 1,
    stderr: expect.stringMatching(`${path} cannot be read: [a-z ]+ \\(ENOENT\\)`),
  })
})

// What Excel and LibreOffice write for values that they take for numbers, dates and formulas.
const DAMAGED = [
  ...['1.23457E+17', '1,23457E+17', '-1.2E-05', '9.00720E+015', '1,234', '-1,234,567.50', "'0123"],
  ...['2-Jan', 'Jan-24', '2-May-24', '#NAME?', '#N/A', '#DIV/0!', '########'],
]
const SOUND = [
  ...[
    '1E5',
    '12E45',
    '0123',
    '1234',
    '1.5',
    '12,34',
    "'90s",
    "''0123",
    'May',
    'Jan-Dec',
    'May-Day',
    '#VIP',
    '#1',
    '-5',
  ],
  ...['2024-01-02', '8190-1234', '1,234,56', 'E+17'],
]

it.each([...DAMAGED.map((text) => [text, true] as const), ...SOUND.map((text) => [text, false] as const)])(
  'audience import refuses %s in a CSV file as changed by a spreadsheet: %s',
  async (text, isRefused) => {
    const tenant = await tenantWithMembers(database, 2)
    const file = writeTemporaryFile(
      'members.csv',
      `userId,externalId,tags\nU1,"${text}",\nU2,,"vip;${text}"\n`,
    )
    const { stderr, stdout, status } = await runAudience('import', tenant, file, '--json')
    expect(JSON.parse(stdout)).toMatchObject(
      isRefused ? { changed: 0, refused: 2 } : { changed: 2, refused: 0 },
    )
    expect(status).toBe(isRefused ? 1 : 0)
    for (const [line, name] of [
      [2, 'externalId'],
      [3, 'a tag'],
    ])
      expect(stderr.includes(`line ${line}: ${name} was changed by a spreadsheet. Format its column`)).toBe(
        isRefused,
      )
    const ndjson = writeTemporaryFile('members.ndjson', JSON.stringify({ userId: 'U1', externalId: text }))
    expect(await runAudience('import', tenant, ndjson)).toMatchObject({ status: 0 })
    expect(await service.member(tenant, 'U1')).toMatchObject({
      externalId: isRefused ? text : expect.any(String),
    })
  },
)

it.each(['1.23457E+17', '1,234', "'28163270815507", '45231.5', '2-Jan', '028e3'])(
  'audience import says that userId is enough if the id is %s',
  async (id) => {
    const tenant = await tenantWithMembers(database, 1)
    const file = writeTemporaryFile('members.csv', `id,userId,externalId\n"${id}",U1,E1\n`)
    const { stderr } = await runAudience('import', tenant, file)
    expect(stderr).toMatch(/line 2: the id is not a 64-bit integer: .+ userId is enough/)
  },
)

it('audience import says that userId is enough if a spreadsheet has rounded the id', async () => {
  const tenant = await tenantWithMembers(database, 1)
  const member = await service.member(tenant, 'U1')
  const rounded = `${String(member?.id).slice(0, 10)}0000`
  const file = writeTemporaryFile('members.csv', `id,userId,externalId\n${rounded},U1,E1\n`)
  expect((await runAudience('import', tenant, file)).stderr).toMatch(/line 2: .+ userId is enough/)
})

it('audience import refuses an externalId that has lost its zeros, unless the file is NDJSON', async () => {
  const tenant = await tenantWithMembers(database, 3)
  const stored = writeTemporaryFile('a.csv', 'userId,externalId\nU1,00123\nU2,0\nU3,A1\n')
  expect((await runAudience('import', tenant, stored)).status).toBe(0)
  const file = writeTemporaryFile('b.csv', 'userId,externalId\nU1,123\nU2,0\nU3,1\n')
  const { stderr, stdout } = await runAudience('import', tenant, file, '--json')
  expect(stderr).toContain(
    'line 2: externalId is the stored one without its zeros: format its column as text',
  )
  expect(JSON.parse(stdout)).toEqual({ changed: 1, replaced: 1, unchanged: 1, refused: 1 })
  const ndjson = writeTemporaryFile('c.ndjson', JSON.stringify({ userId: 'U1', externalId: '123' }))
  expect((await runAudience('import', tenant, ndjson)).status).toBe(0)
})

const TEXT = 'ゴールド①～㈱髙﨑'
const THAI = 'ทองคำ น้ำ ฿'
/** TextEncoder writes UTF-8 alone. Inverts the decoder of Python-compatible tables, which test/unit/encodings.test.ts proves. */
function encode(text: string, label: string): Buffer {
  const bytes = new Map<string, number[]>()
  const decoder = new TextDecoder(label)
  for (let high = 0; high < 256; high += 1) {
    bytes.set(decoder.decode(Uint8Array.of(high)), [high])
    for (let low = 0x40; label === 'shift_jis' && high > 0x80 && low < 0xfd; low += 1) {
      const character = decoder.decode(Uint8Array.of(high, low))
      if (!bytes.has(character)) bytes.set(character, [high, low])
    }
  }
  return Buffer.from([...text].flatMap((character) => bytes.get(character) ?? []))
}

it.each([
  ['cp932', 'shift_jis', TEXT],
  ['tis-620', 'tis-620', THAI],
])('audience import reads a file in %s, and refuses it in UTF-8', async (encoding, label, tag) => {
  const tenant = await tenantWithMembers(database, 1)
  const file = writeTemporaryFile('members.csv', encode(`userId,tags\r\nU1,${tag}\r\n`, label))
  const refused = await runAudience('import', tenant, file)
  expect(refused.stderr).toMatch(/line 2 is not in UTF-8. Convert it, or choose its encoding/)
  const { stdout } = await runAudience('import', tenant, file, '--encoding', encoding, '--json')
  expect(JSON.parse(stdout)).toMatchObject({ changed: 1, refused: 0 })
  expect((await service.member(tenant, 'U1'))?.tags).toEqual([tag])
})

it('audience import refuses a file in another encoding than --encoding', async () => {
  const tenant = await tenantWithMembers(database, 1)
  for (const content of [
    Buffer.from('userId,tags\nU1,\xff', 'latin1'),
    Buffer.from('userId,tags\nU1,\x83', 'latin1'),
  ]) {
    const file = writeTemporaryFile('members.csv', content)
    const { stderr, status } = await runAudience('import', tenant, file, '--encoding', 'cp932')
    expect(status).toBe(1)
    expect(stderr).toMatch(/members.csv cannot be read: it is not in shift_jis. Choose another encoding/)
  }
})

it('audience import reads characters whose bytes arrive one by one', async () => {
  const tenant = await tenantWithMembers(database, 1)
  const line = encode(`{"userId":"U1","tags":["${TEXT}"]}`, 'shift_jis')
  const stdin = Object.assign(Readable.from(Array.from(line, (byte) => Buffer.of(byte))), { isTTY: false })
  const io = { env: environment(env), stdin, stdout: new PassThrough(), stderr: new PassThrough() }
  const account = String(tenant.accountId)
  await run(['audience', 'import', '--account', account, '--encoding', 'cp932', '-'], io)
  expect((await service.member(tenant, 'U1'))?.tags).toEqual([TEXT])
})

it('audience import skips a byte order mark, and a second import of an export changes nothing', async () => {
  const tenant = await tenantWithMembers(database, 3)
  const ndjson = ['U1', 'U2'].map((userId, i) =>
    JSON.stringify({
      userId,
      externalId: `0${i}`,
      tags: ['b', 'a', "'1"],
      attributes: { cups: i, name: '=1+1' },
    }),
  )
  await runAudience('import', tenant, writeTemporaryFile('members.ndjson', ndjson.join('\n')))
  const file = join(temporaryDirectory(), 'members.csv')
  await runAudience('export', tenant, '--format', 'csv', '--output', file)
  for (let i = 0; i < 2; i += 1) {
    const { stdout } = await runAudience('import', tenant, file, '--json')
    expect(JSON.parse(stdout)).toEqual({ changed: 0, replaced: 0, unchanged: 3, refused: 0 })
  }
})
