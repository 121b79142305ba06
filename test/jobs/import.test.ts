/** Audience files that operators upload: what is changed, what is refused, and what stays of the file. */
import { expect, it } from 'vitest'
import { takeTurn } from '../../src/jobs/turn.ts'
import { commandActor } from '../../src/operators/actor.ts'
import { addSignedIn, startSignedIn } from '../support/console.ts'
import { addTenant, type Tenant } from '../support/database.ts'
import { endJobsAfterEach, finishJobs, sendPiece, takeShortTurn, uploadFile } from '../support/jobs.ts'
import { loadMembers } from '../support/load.ts'
import { updateOperator } from '../support/operations.ts'
import { setUpService } from '../support/service.ts'

const { database, service } = await setUpService()
const { url, operator } = await startSignedIn(database)

endJobsAfterEach(database)

async function addAudience(members: number): Promise<Tenant> {
  const tenant = await addTenant(database)
  await loadMembers(database, tenant, members)
  return tenant
}

const jobOf = async ({ id }: { id: string }) => (await operator.get(`/api/jobs/${id}`)).json.job
const countPieces = async () => {
  const [row] = await database.query<{ count: number }>(`select count(*)::int as count from job_file`)
  return row?.count
}

/** Uploads and imports a file, and resolves with the job. */
async function importFile(
  tenant: Tenant,
  format: 'csv' | 'ndjson',
  file: string | Buffer,
  pieceBytes?: number,
) {
  const job = await uploadFile(operator, tenant, format, file, pieceBytes)
  await finishJobs(database)
  expect(await countPieces()).toBe(0)
  return jobOf(job)
}

it('an uploaded file changes members, and counts what it changes, leaves and refuses by line', async () => {
  const tenant = await addAudience(4)
  const file = [
    'userId,externalId,tags',
    'U1,E1,"[""a"",""b""]"',
    'U2,,"[]"',
    'Unobody,E2,',
    'U3,E1,',
    `U4,,"[""${'x'.repeat(65)}""]"`,
  ].join('\r\n')
  const job = await importFile(tenant, 'csv', file, 7)
  expect(job).toMatchObject({ status: 'done', done: String(file.length), total: String(file.length) })
  expect(job.tally).toEqual({
    ...{ changed: 1, replaced: 0, unchanged: 1, refused: 3 },
    refusals: [
      { line: 4, reason: 'No such member in this scope' },
      { line: 5, reason: 'Another member of this scope has this externalId' },
      { line: 6, reason: expect.stringContaining('tags/0 must not have more than 64 characters') },
    ],
  })
  expect(await service.member(tenant, 'U1')).toMatchObject({ externalId: 'E1', tags: ['a', 'b'] })
  const recorded = await database.query(`select action, changes from activity where channel_oa_id = $1`, [
    tenant.accountId,
  ])
  expect(recorded).toEqual([
    { action: 'members.imported', changes: { format: 'csv', bytes: String(file.length) } },
  ])
})

it('an uploaded file takes tags as names that are separated by semicolons, and as JSON', async () => {
  const tenant = await addAudience(6)
  const file = [
    'userId,tags',
    'U1,gold;autumn',
    'U2,gold; gold ;',
    'U3,"[""a;b""]"',
    'U4, ; ',
    'U5,2024',
    'U6,"[""open"',
  ]
  const { tally } = await importFile(tenant, 'csv', file.join('\n'))
  const tagsOf = async (userId: string) => (await service.member(tenant, userId))?.tags
  expect(await Promise.all(['U1', 'U2', 'U3', 'U4', 'U5', 'U6'].map(tagsOf))).toEqual([
    ...[['gold', 'autumn'], ['gold'], ['a;b'], [], ['2024'], []],
  ])
  expect(tally.refusals.map(({ line }: { line: number }) => line)).toEqual([7])
  expect(tally.refusals[0].reason).toBe(
    'tags are neither a JSON array nor names that are separated by semicolons',
  )
})

it('an uploaded file fails with a reason that quotes nothing of the file', async () => {
  const tenant = await addAudience(1)
  for (const [file, reason] of [
    ['name,phone\nTanaka,0801234', 'columns_missing'],
    ['userId,tags,tags\nU1,,', 'line 1: several columns have the name tags. Remove all but one.'],
    [Buffer.from('userId,tags\nU1,', 'utf16le'), /not in UTF-8|columns_missing/],
    ['userId,tags\nU1,"["secret"', 'the file, line 2: a quoted cell is not closed, or text follows it.'],
    [`userId,tags\nU1,"${'x\n'.repeat(600_000)}`, /line is longer than 1048576 bytes/],
    ['\n\n', 'the file has no entry. Check whether the program that wrote it failed.'],
  ] as Array<[string | Buffer, string | RegExp]>) {
    const job = await importFile(tenant, 'csv', file)
    expect([job.status, job.reason]).toEqual([
      'failed',
      typeof reason === 'string' ? reason : expect.stringMatching(reason),
    ])
    expect(job.reason).not.toMatch(/Tanaka|secret/)
  }
})

it('an uploaded file survives hostile cells', async () => {
  const tenant = await addAudience(2)
  const wide = `${['userId', 'tags', ...Array.from({ length: 20_000 }, (_, index) => `c${index}`)].join()}\nU1,"[""wide""]"`
  expect((await importFile(tenant, 'csv', wide)).tally).toMatchObject({ changed: 1 })
  const nul = await importFile(
    tenant,
    'csv',
    'userId,externalId\nU1,a\u0000b\nU\u00002,E\n"=cmd()",E\nU2,\'=cmd()',
  )
  expect(nul.tally).toMatchObject({ changed: 1, refused: 3 })
  expect((await service.member(tenant, 'U2'))?.externalId).toBe('=cmd()')
  const long = await importFile(
    tenant,
    'ndjson',
    `{"userId":"U1","tags":["x"]}\n"${'y'.repeat(3_000_000)}"\n`,
  )
  expect(long.tally).toMatchObject({ changed: 1, refused: 1 })
})

it('an uploaded file keeps the names of attributes to itself', async () => {
  const tenant = await addAudience(1)
  const entry = { userId: 'U1', attributes: { 'Tanaka Taro': [1], 'x/y must': {} } }
  const job = await importFile(tenant, 'ndjson', JSON.stringify(entry))
  expect(job.tally.refused).toBe(1)
  expect(JSON.stringify(job.tally)).not.toMatch(/Tanaka|x\/y/)
})

const start = (tenant: Tenant, body: object) =>
  operator.post(`/api/accounts/${tenant.accountId}/import-members`, body)

it('an upload says where to continue after a piece that is missing or repeated', async () => {
  const tenant = await addAudience(1)
  const { status, json } = await start(tenant, { format: 'ndjson', size: 28 })
  expect([status, json.job.status]).toEqual([202, 'uploading'])
  const { id } = json.job
  const file = Buffer.from('{"userId":"U1","tags":["a"]}')
  const send = async (position: number, end: number) =>
    (await sendPiece(operator, id, position, file.subarray(position, end))).json
  expect(await send(0, 10)).toEqual({ stored: '10', isComplete: false })
  expect(await send(0, 10)).toEqual({ stored: '10', isComplete: false })
  expect(await send(20, 28)).toEqual({ stored: '10', isComplete: false })
  expect(await takeTurn(database)).toBe(false)
  expect((await sendPiece(operator, id, 10, Buffer.alloc(19))).status).toBe(400)
  expect(await send(10, 28)).toEqual({ stored: '28', isComplete: true })
  expect(await send(10, 28)).toEqual({ stored: '28', isComplete: true })
  await finishJobs(database)
  expect(await jobOf({ id })).toMatchObject({ status: 'done', tally: { changed: 1 } })
})

it('an upload is limited in size, and a piece by the limit of a body', async () => {
  const tenant = await addAudience(1)
  for (const size of [0, -1, 1.5, 256 * 1024 * 1024 + 1, '7'])
    expect((await start(tenant, { format: 'csv', size })).status, String(size)).toBe(400)
  expect((await start(tenant, { format: 'xlsx', size: 1 })).status).toBe(400)
  const { job } = (await start(tenant, { format: 'csv', size: 3 * 1024 * 1024 })).json
  expect((await sendPiece(operator, job.id, 0, Buffer.alloc(1024 * 1024 + 1))).status).toBe(413)
  expect((await sendPiece(operator, '0', 0, Buffer.from('x'))).status).toBe(404)
})

it('an upload is deleted when it is cancelled, and a minute after its last piece', async () => {
  const tenant = await addAudience(1)
  for (const end of ['cancelled', 'abandoned']) {
    const { job } = (await start(tenant, { format: 'csv', size: 100 })).json
    await sendPiece(operator, job.id, 0, Buffer.from('userId,tags'))
    expect(await countPieces()).toBe(1)
    if (end === 'cancelled') await operator.post(`/api/jobs/${job.id}/cancel`)
    else {
      const pause = (seconds: number) =>
        database.query(`update job set stepped_at = now() - $2 * interval '1 second' where id = $1`, [
          ...[job.id, seconds],
        ])
      await pause(50)
      await takeTurn(database)
      expect((await jobOf(job)).status).toBe('uploading')
      await pause(61)
      await takeTurn(database)
      expect(await jobOf(job)).toMatchObject({ status: 'failed', reason: 'upload_abandoned' })
    }
    expect(await countPieces()).toBe(0)
  }
})

it('does not bring back a person who is erased during an import', async () => {
  const tenant = await addAudience(300)
  const file = Array.from(
    { length: 300 },
    (_, index) => `{"userId":"U${index + 1}","tags":["imported"]}`,
  ).join('\n')
  const job = await uploadFile(operator, tenant, 'ndjson', file, 1_000)
  await takeShortTurn(database)
  await service.eraseUser(tenant, 'U1')
  await service.eraseUser(tenant, 'U300')
  const [text] = await database.query<{ text: string }>(
    `select string_agg(convert_from(bytes, 'UTF8'), '' order by position) as text from job_file where job_id = $1`,
    [job.id],
  )
  // Lines that are already applied are deleted.
  expect(text?.text).not.toContain('"U1"')
  while (await takeShortTurn(database));
  expect((await jobOf(job)).tally).toEqual({
    ...{ changed: 299, replaced: 0, unchanged: 0, refused: 1 },
    refusals: [{ line: 300, reason: 'No such member in this scope' }],
  })
  for (const userId of ['U1', 'U300']) expect(await service.member(tenant, userId)).toBeUndefined()
  expect(await countPieces()).toBe(0)
})

it('is uploaded by nobody but the operator who started it', async () => {
  const tenant = await addAudience(1)
  const path = `/api/accounts/${tenant.accountId}/import-members`
  const { job } = (await operator.post(path, { format: 'ndjson', size: 10 })).json
  const colleague = await addSignedIn({ url, database }, { role: 'manager' })
  expect((await sendPiece(colleague, job.id, 0, Buffer.from('{"userId":'))).status).toBe(404)
  expect((await jobOf(job)).status).toBe('uploading')
  const { job: own } = (await colleague.post(path, { format: 'ndjson', size: 10 })).json
  expect((await sendPiece(operator, own.id, 0, Buffer.from('{"userId":'))).status).toBe(404)
  const elsewhere = [(await addTenant(database)).organizationId]
  await updateOperator(database, commandActor(), colleague.id, { organizationIds: elsewhere })
  expect((await sendPiece(colleague, own.id, 0, Buffer.from('{"userId":'))).status).toBe(404)
})
