/** Keeps other web pages away: their requests carry the operator's cookie if they come from another port of the same host. */
import type { FastifyInstance, FastifyRequest } from 'fastify'
import { AppError } from '../../errors.ts'

/** A page of another origin cannot set it without asking first, and this service never agrees. */
const CONSOLE_HEADER = 'x-console'

export function requireSameOrigin(app: FastifyInstance): void {
  app.addHook('onRequest', (request, _reply, done) => {
    const isAllowed = request.method === 'GET' ? !isSentByOtherPage(request) : isSentByConsole(request)
    done(isAllowed ? undefined : new AppError('foreign_origin'))
  })
}

/**
 * `none`: the person typed the address. A link of another page may lead to a page, but not to data. The route decides what is data,
 * because the address has many spellings: `/%61pi/fleet` is routed like `/api/fleet`.
 */
function isSentByOtherPage({ headers, routeOptions }: FastifyRequest): boolean {
  const isData = routeOptions.url?.startsWith('/api/') === true
  const site = headers['sec-fetch-site']
  return isData && site !== undefined && site !== 'same-origin' && site !== 'none'
}

/** Browsers send Sec-Fetch-Site over https and to the own machine. Over plain http they send Origin alone. */
function isSentByConsole({ headers, host }: FastifyRequest): boolean {
  if (headers[CONSOLE_HEADER] !== '1') return false
  const site = headers['sec-fetch-site']
  if (site !== undefined) return site === 'same-origin'
  const { origin = '' } = headers
  return URL.canParse(origin) && new URL(origin).host === host
}
