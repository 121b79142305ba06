/** The CSV file of `oa-audience accounts apply`. */
import { expect, it } from 'vitest'
import { fileSource } from '../../src/cli/io.ts'
import { readFleet } from '../../src/jobs/fleet-file.ts'
import { writeTemporaryFile } from '../support/process.ts'

const HEADER = 'organization,name,channel_id,channel_secret,channel_access_token'
const SECRET = 'do-not-print-this-secret'

function read(content: string | Buffer) {
  const file = writeTemporaryFile('fleet.csv', content)
  return readFleet(fileSource(file))
}

async function faultsOf(content: string | Buffer): Promise<string[]> {
  const error = await read(content).then(
    () => null,
    (reason: Error) => reason,
  )
  expect(error?.name).toBe('FatalError')
  expect(error?.message).not.toContain(SECRET)
  return error?.message.split('\n') ?? []
}

it('reads names as in the options or in the table, a BOM, quoted cells and blank lines', async () => {
  const content = `\ufeffOrganization,channel-id,NAME,basic_id\r\n"My, agency", 1 ,"Café\nน้ำ",'@cafe\r\n,,,\r\n\r\n7,2,,\r\n`
  expect(await read(content)).toEqual([
    {
      line: 3,
      organization: 'My, agency',
      channelId: '1',
      columns: { channel_id: '1', name: 'Café\nน้ำ', basic_id: '@cafe' },
    },
    { line: 6, organization: '7', channelId: '2', columns: { channel_id: '2' } },
  ])
})

it('reads a file in CP932, and a name that looks like a number', async () => {
  const name = Buffer.from('8353815b838b8368', 'hex')
  const lines = [Buffer.from('organization,channel_id,name\r\n'), name, Buffer.from(',1,"1,234"\r\n')]
  const file = writeTemporaryFile('fleet.csv', Buffer.concat(lines))
  expect(await readFleet(fileSource(file, 'cp932'))).toMatchObject([
    { organization: 'ゴールド', columns: { name: '1,234' } },
  ])
})

it.each([
  [
    'has an unknown column',
    `${HEADER},colour\n`,
    /^line 1, column 6: the name is unknown\. Known names: org/,
  ],
  ['lacks a column', 'organization,name\n', /^line 1: the column channel_id is missing\.$/],
  ['has no header', `1,${SECRET}\n`, /^line 1, column 1: the name is unknown/],
  ['is empty', '', /is empty/],
  ['has a quote that is not closed', `${HEADER}\n1,"${SECRET}`, /line \d+: a quoted cell is not closed/],
  ['has a line without an end', `${HEADER}\n${SECRET.repeat(9_000)}`, /line \d+: the line is longer than/],
  [
    'has a secret that no platform issues',
    `${HEADER}\n1,A,1,${'s'.repeat(4_097)},\n`,
    /^line 2, column channel_secret: it has more than 4096 characters/,
  ],
  [
    'has a secret that a spreadsheet took for a number',
    `${HEADER}\n1,A,1,1.23457E+17,\n`,
    /^line 2, column channel_secret: it was changed by a spreadsheet\. Format its column as text/,
  ],
  [
    'has the id of an organization that a spreadsheet has rounded',
    `${HEADER}\n2.81633E+13,A,1,,\n`,
    /^line 2, column organization: it was changed by a spreadsheet/,
  ],
  ['has too many accounts', `${HEADER}\n${'1,A,1,,\n'.repeat(10_001)}`, /has more than 10000 accounts/],
])('a file is refused if it %s', async (_, content, message) => {
  expect((await faultsOf(content))[0]).toMatch(message)
})

it('a file is refused with the first 20 of many faults', async () => {
  const faults = await faultsOf([HEADER, ...Array(200).fill(`1,x,y,${SECRET},t`)].join('\n'))
  expect(faults).toHaveLength(22)
  expect(faults.at(-2)).toBe('Further faults, not shown: 180.')
})

it('a file is refused if it does not exist', async () => {
  await expect(readFleet(fileSource('/nonexistent/fleet.csv'))).rejects.toThrow(
    'cannot be read: no such file or directory (ENOENT)',
  )
})
