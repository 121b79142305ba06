/** The export of the events of an account. */
import type { FastifyInstance } from 'fastify'
import { findAccountDetails } from '../accounts/accounts.ts'
import { eventLines, findExportEnd, readRange, recordEventExport } from '../audience/export/export-events.ts'
import { NDJSON } from '../audience/list.ts'
import { Type } from '../http/typebox.ts'
import { type ConsoleParts, checkFields, requireId } from './parts.ts'
import { sendDownload } from './send-download.ts'
import { operatorOf, VIEWER } from './session.ts'

const checkExport = checkFields({
  from: Type.String(),
  to: Type.Optional(Type.String()),
})

export function eventRoutes(api: FastifyInstance, parts: ConsoleParts): void {
  const { database, readsFromNow } = parts
  type OfAccount = { Params: { account: string } }
  api.get<OfAccount>('/accounts/:account/events/export', VIEWER, async (request, reply) => {
    const operator = operatorOf(request)
    const accountId = requireId(request.params.account)
    const account = await findAccountDetails(database, operator.organizationIds, accountId)
    const range = readRange(checkExport(request.query), await findExportEnd(database))
    return sendDownload(reply, parts, {
      organizationIds: [account.organizationId],
      fileName: `events-${accountId}.ndjson`,
      mediaType: NDJSON.mediaType,
      record: () => recordEventExport(database, operator, account, range),
      read: () => eventLines(readsFromNow(), accountId, range),
    })
  })
}
