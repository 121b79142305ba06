/** Refuses requests of other web pages. A page on another port of the same host sends the operator's cookie. */
import type { FastifyInstance, FastifyRequest } from 'fastify'
import { AppError } from '../../errors.ts'

/** A page of another origin can set this header only after a CORS preflight, which this service never allows. */
const CONSOLE_HEADER = 'x-console'

export function requireSameOrigin(app: FastifyInstance): void {
  app.addHook('onRequest', (request, _reply, done) => {
    const isAllowed = request.method === 'GET' ? !isSentByOtherPage(request) : isSentByConsole(request)
    done(isAllowed ? undefined : new AppError('foreign_origin'))
  })
}

/**
 * `none`: the operator typed the URL. A link of another site may open a page, but not read data. The route decides what is data,
 * because a URL has many spellings: `/%61pi/fleet` is routed like `/api/fleet`.
 */
function isSentByOtherPage({ headers, routeOptions }: FastifyRequest): boolean {
  const isData = routeOptions.url?.startsWith('/api/') === true
  const site = headers['sec-fetch-site']
  return isData && site !== undefined && site !== 'same-origin' && site !== 'none'
}

/** Browsers send Sec-Fetch-Site over https and to localhost. Over plain http they send only Origin. */
function isSentByConsole({ headers, host }: FastifyRequest): boolean {
  if (headers[CONSOLE_HEADER] !== '1') return false
  const site = headers['sec-fetch-site']
  if (site !== undefined) return site === 'same-origin'
  const { origin = '' } = headers
  return URL.canParse(origin) && new URL(origin).host === host
}
