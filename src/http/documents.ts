/** GET /openapi.json, and the documentation page at GET /docs. */
import swaggerUi from '@fastify/swagger-ui'
import type { FastifyInstance, RouteOptions } from 'fastify'

/** Swagger UI has data: URLs in its style sheet. It loads nothing from another host. */
const CONTENT_SECURITY_POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self' data:",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join('; ')

export async function documentRoutes(app: FastifyInstance): Promise<void> {
  let text: string | undefined
  app.get('/openapi.json', async (_, reply) => {
    text ??= JSON.stringify(app.swagger(), null, 2)
    return reply.type('application/json; charset=utf-8').send(text)
  })
  await app.register(async (pages) => {
    pages.addHook('onRoute', offerGetAlone)
    await pages.register(swaggerUi, {
      routePrefix: '/docs',
      staticCSP: CONTENT_SECURITY_POLICY,
      // The base layout has no field for the address of another document.
      uiConfig: { layout: 'BaseLayout', deepLinking: true, displayRequestDuration: true },
      theme: { title: 'oa-audience API' },
    })
  })
}

/** The plugin offers its files by HEAD as well. No endpoint of the service does. */
function offerGetAlone(route: RouteOptions): void {
  if (Array.isArray(route.method)) route.method = 'GET'
}
