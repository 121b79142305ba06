/** The routes of operations: see operations/operation.ts. */
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { bodyBytes, parseUtf8Json } from '../http/body.ts'
import { Type } from '../http/typebox.ts'
import { checker } from '../http/validate.ts'
import { findJob } from '../jobs/job.ts'
import {
  itemsNameOf,
  type Operation,
  type Page,
  perform,
  routeOf,
  type Services,
} from '../operations/operation.ts'
import { type ConsoleParts, Id, idOrNull, pageOf, READ_LIMIT, requireId } from './parts.ts'
import { operatorOf } from './session.ts'

const checkPage = checker(Type.Object({ after: Type.Optional(Id) }))

type Route = { Params: { id?: string }; Querystring: Record<string, string> }

export function operationRoutes(
  api: FastifyInstance,
  parts: ConsoleParts,
  operations: Operation[],
  services: Services,
): void {
  const { database, reads } = parts
  for (const operation of operations) {
    const { method, path: url } = routeOf(operation)
    const config = { role: operation.role }
    api.route<Route>({
      method,
      url,
      config,
      handler: async (request, reply) => {
        const { input, page } = operation.way === 'list' ? pageFrom(request.query) : inputOf(request)
        const id = operation.hasTarget ? requireId(request.params.id ?? '') : null
        const actor = operatorOf(request)
        const call = { database, reads, actor, services, id, input: operation.check(input), page }
        const { result, job } = await perform(operation, call)
        if (job) return sendJob(request, reply, parts, job)
        if (operation.way === 'list') return listOf(operation, result as Array<{ id: bigint }>)
        return result ?? reply.code(204).send()
      },
    })
  }
}

type JobParts = Pick<ConsoleParts, 'database' | 'onJob'>

/** Sends a job that was stored, and begins it in this process at once. */
async function sendJob(request: FastifyRequest, reply: FastifyReply, parts: JobParts, id: bigint) {
  parts.onJob?.()
  return reply.code(202).send({ job: await findJob(parts.database, operatorOf(request), id) })
}

function pageFrom({ after, ...input }: Record<string, string>): { input: object; page: Page } {
  const position = checkPage(after === undefined ? {} : { after })
  return { input, page: { after: idOrNull(position.after), limit: READ_LIMIT } }
}

function inputOf(request: FastifyRequest): { input: unknown; page?: undefined } {
  if (request.method === 'GET') return { input: request.query }
  const body = bodyBytes(request)
  return { input: body.length === 0 ? {} : parseUtf8Json(body) }
}

function listOf(operation: Operation, rows: Array<{ id: bigint }>) {
  const { items, next } = operation.isWhole ? { items: rows, next: null } : pageOf(rows)
  return { [itemsNameOf(operation)]: items, next }
}
