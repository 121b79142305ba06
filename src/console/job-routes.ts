/** Long work over members: how many match, and its start. Exports of members and events. */
import type { FastifyInstance } from 'fastify'
import { scopeOfAccount } from '../accounts/scope.ts'
import { eventLines, findExportEnd, readRange, recordEventExport } from '../audience/export/export-events.ts'
import { checkFilters, readFilters } from '../audience/filters.ts'
import { countMatching } from '../audience/list-pages.ts'
import { FILE_FORMATS, memberLines } from '../audience/list-route.ts'
import { TAG_MAX_LENGTH } from '../audience/member.ts'
import { TAGS_MAX } from '../audience/update.ts'
import { AppError } from '../errors.ts'
import { bodyBytes, parseUtf8Json } from '../http/body.ts'
import { Type } from '../http/typebox.ts'
import { checker, refuseInput, StorableText } from '../http/validate.ts'
import { startErasingMatching } from '../jobs/erase-members.ts'
import { startJob } from '../jobs/job.ts'
import { FILE_MAX_BYTES, storePiece } from '../jobs/job-file.ts'
import { publicFilters } from '../jobs/selection.ts'
import { startTagging } from '../jobs/tag-members.ts'
import { FilterSchema } from '../operations/replays.ts'
import { recordAccount } from '../operators/activity.ts'
import { sendJob } from './operation-routes.ts'
import { type ConsoleParts, checkFields, Id, idOrNull, requireId } from './parts.ts'
import { accountOf, MANAGER, type OfAccount, operatorOf, sendDownload, VIEWER } from './session.ts'

const checkSearch = checker(FilterSchema)
const Format = Type.Union([Type.Literal('csv'), Type.Literal('ndjson')])
const checkExport = checkFields({
  ...FilterSchema.properties,
  format: Type.Union([Type.Literal('csv'), Type.Literal('ndjson'), Type.Literal('line-ids')]),
})
const Tags = Type.Array(StorableText({ minLength: 1, maxLength: TAG_MAX_LENGTH }), { maxItems: TAGS_MAX })
const checkTagging = checkFields({
  filters: FilterSchema,
  addTags: Tags,
  removeTags: Tags,
  expectedCount: Type.Integer({ minimum: 0 }),
})

const checkErasing = checkFields({ filters: FilterSchema, expectedCount: Type.Integer({ minimum: 0 }) })

const checkImport = checkFields({
  format: Format,
  size: Type.Integer({ minimum: 1, maximum: FILE_MAX_BYTES }),
})
const checkEventExport = checkFields({
  from: Type.String(),
  to: Type.Optional(Type.String()),
})
const checkPiece = checkFields({ position: Id })

type OfId = { Params: { id: string } }

export function jobRoutes(api: FastifyInstance, parts: ConsoleParts): void {
  readMatchingRoutes(api, parts)
  changeMatchingRoutes(api, parts)
  importRoutes(api, parts)
}

/** Counts and exports the members that match a filter, and exports events. */
function readMatchingRoutes(api: FastifyInstance, parts: ConsoleParts): void {
  const { database, reads, readsFromNow, counted } = parts
  api.get<OfAccount>('/accounts/:account/audience/count', VIEWER, async (request) => {
    const account = await accountOf(database, request)
    const matching = await readFilters(reads, account.id, checkFilters(checkSearch(request.query)))
    return {
      count: await counted(operatorOf(request), () =>
        countMatching(reads, scopeOfAccount(account), matching),
      ),
    }
  })

  // The browser shows the progress of the download. Members are read page by page at its pace.
  api.get<OfAccount>('/accounts/:account/audience/export', VIEWER, async (request, reply) => {
    const account = await accountOf(database, request)
    const { format, ...search } = checkExport(request.query)
    const matching = await readFilters(reads, account.id, checkFilters(search))
    const scope = scopeOfAccount(account)
    const members = await counted(operatorOf(request), () => countMatching(reads, scope, matching))
    const changes = { format, members, filters: publicFilters(matching) }
    return sendDownload(reply, parts, {
      organizationIds: [account.organizationId],
      fileName: `members-${account.id}.${format === 'line-ids' ? 'txt' : format}`,
      mediaType: FILE_FORMATS[format].mediaType,
      record: () => recordAccount(database, operatorOf(request), 'members.exported', account, changes),
      read: () => memberLines(reads, scope, matching, format),
    })
  })

  api.get<OfAccount>('/accounts/:account/events/export', VIEWER, async (request, reply) => {
    const account = await accountOf(database, request)
    const range = readRange(checkEventExport(request.query), await findExportEnd(database))
    return sendDownload(reply, parts, {
      organizationIds: [account.organizationId],
      fileName: `events-${account.id}.ndjson`,
      mediaType: FILE_FORMATS.ndjson.mediaType,
      record: () => recordEventExport(database, operatorOf(request), account, range),
      read: () => eventLines(readsFromNow(), account.id, range),
    })
  })
}

function changeMatchingRoutes(api: FastifyInstance, parts: ConsoleParts): void {
  const { database, counted } = parts
  api.post<OfAccount>('/accounts/:account/audience/tag', MANAGER, async (request, reply) => {
    const account = await accountOf(database, request)
    const { expectedCount: expected, ...body } = checkTagging(parseUtf8Json(bodyBytes(request)))
    const change = {
      filters: await readFilters(database, account.id, body.filters),
      add: [...new Set(body.addTags)],
      remove: [...new Set(body.removeTags)],
    }
    requireChange(change)
    const matching = await counted(operatorOf(request), () =>
      countMatching(database, scopeOfAccount(account), change.filters),
    )
    return sendJob(request, reply, parts, (transaction) =>
      startTagging(transaction, operatorOf(request), account, change, { count: matching, expected }),
    )
  })

  api.post<OfAccount>('/accounts/:account/audience/erase', MANAGER, async (request, reply) => {
    const account = await accountOf(database, request)
    const { expectedCount: expected, filters } = checkErasing(parseUtf8Json(bodyBytes(request)))
    const erased = await readFilters(database, account.id, filters)
    const matching = await counted(operatorOf(request), () =>
      countMatching(database, scopeOfAccount(account), erased),
    )
    return sendJob(request, reply, parts, (transaction) =>
      startErasingMatching(transaction, operatorOf(request), account, erased, { count: matching, expected }),
    )
  })
}

function importRoutes(api: FastifyInstance, parts: ConsoleParts): void {
  const { database } = parts
  // The upload follows, in pieces that fit into a body.
  api.post<OfAccount>('/accounts/:account/audience/import', MANAGER, async (request, reply) => {
    const { id: accountId, organizationId } = await accountOf(database, request)
    const parameters = checkImport(parseUtf8Json(bodyBytes(request)))
    const job = { kind: 'members.import', accountId, organizationId, parameters } as const
    const upload = { ...job, total: parameters.size, status: 'uploading' } as const
    return sendJob(request, reply, parts, (transaction) =>
      startJob(transaction, operatorOf(request), upload, null),
    )
  })

  api.post<OfId>('/jobs/:id/file', MANAGER, async (request) => {
    const id = requireId(request.params.id)
    const position = idOrNull(checkPiece(request.query).position) ?? 0n
    const bytes = bodyBytes(request)
    const upload = await database.transaction((transaction) =>
      storePiece(transaction, operatorOf(request), { id, position, bytes }),
    )
    if (upload.isComplete) parts.onJob?.()
    return upload
  })
}

function requireChange({ add, remove }: { add: string[]; remove: string[] }): void {
  if (add.length + remove.length === 0)
    throw new AppError('invalid_input', { message: 'Add or remove at least one tag' })
  const both = add.find((tag) => remove.includes(tag))
  if (both !== undefined) refuseInput('removeTags', 'has a tag that is also added')
}
